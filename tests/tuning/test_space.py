from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from allneg.errors import RecipeError
from allneg.tuning import Space, read_space

PAPER = Path(__file__).parents[2] / "src/allneg/recipes/search/paper-grid.toml"
MakeSpace = Callable[..., Space]


def test_a_grid_is_every_combination_once(make_space: MakeSpace) -> None:
    space = make_space()
    assert list(space.axes) == ["optimizer.learning_rate", "regularizer.weight"]
    assert {tuple(trial.settings.values()) for trial in space.trials} == {
        (rate, weight) for rate in (0.5, 0.1) for weight in (0.1, 0.0, 0.01)
    }
    assert len({trial.id for trial in space.trials}) == 6
    trial = space.trials[0]
    assert trial.recipe.optimizer.learning_rate == trial.settings["optimizer.learning_rate"]
    assert trial.recipe.model.dim == 4


def test_trials_do_not_differ_only_in_settings_without_effect(make_space: MakeSpace) -> None:
    space = make_space('"regularizer.name" = ["none", "n3"]\n"regularizer.weight" = [0.1, 1]')
    assert [tuple(trial.settings.values()) for trial in space.trials] == [
        ("none", 0.1), ("n3", 0.1), ("n3", 1.0)
    ]  # fmt: skip


def test_a_trials_id_is_the_hash_of_its_whole_recipe(make_space: MakeSpace) -> None:
    first = make_space('"regularizer.weight" = [1]').trials[0]
    digest = hashlib.sha256(first.recipe.to_toml().encode()).hexdigest()
    assert first.id == digest[:16]
    assert make_space("regularizer.weight = [1.0, 2]").trials[0].id == first.id
    assert make_space('"regularizer.weight" = [1]', "training.seed=1").trials[0].id != first.id


def test_earlier_names_of_settings_are_read(make_space: MakeSpace) -> None:
    old, new = make_space('"penalty.weight" = [1, 2]'), make_space('"regularizer.weight" = [1, 2]')
    assert old.axes == new.axes
    assert old.trials == new.trials


def test_the_tables_of_a_space_override_those_of_its_base(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "one.toml").write_text("[model]\nname = 'simple'\ndim = 7\n")
    file = tmp_path / "space.toml"
    file.write_text("base = 'bases/one.toml'\n[model]\ndim = 9\n[search]\n'loss.block' = [4, 5]\n")
    model = read_space(file).recipe.model
    assert (model.name, model.dim) == ("simple", 9)
    assert read_space(file, ["model.dim=3"]).recipe.model.dim == 3


def test_the_base_of_a_space_may_be_a_shipped_recipe(tmp_path: Path) -> None:
    file = tmp_path / "space.toml"
    file.write_text("base = 'wn18rr/rotate'\n[search]\n'model.dim' = [4, 5]\n")
    recipe = read_space(file).recipe
    assert (recipe.data.name, recipe.model.name) == ("wn18rr", "rotate")


WEIGHT = '"regularizer.weight" = '
NO_RANGE = r"search\.regularizer\.weight must be a list of values or a range such as \{ low = 1e-4"
CLASH = '"loss.name" = ["softmax", "logistic"]\n"loss.margin" = { low = 0.0, high = 3.0 }'
MANY = ", ".join(map(str, range(1, 400)))


@pytest.mark.parametrize(
    "searched, message",
    [
        ("", r"a table \[search\]"),
        ('"regularizer.wieght" = [1]', r"regularizer\.wieght is not a setting; did you mean"),
        (WEIGHT + "1", NO_RANGE),
        (WEIGHT + "{low = 0}", NO_RANGE),
        (WEIGHT + "{low = 0, high = 1, step = 1}", NO_RANGE),
        (WEIGHT + "[]", r"search\.regularizer\.weight has no values to try"),
        (WEIGHT + "[1, 1.0]", "lists a value twice"),
        (WEIGHT + '{low = "a", high = 1}', "must have numbers as low and high"),
        (WEIGHT + "{low = 1, high = 2, log = 3}", "and a true or false log"),
        (WEIGHT + "{low = 1, high = 1}", "must have a finite low below a finite high, not 1 and 1"),
        (WEIGHT + "{low = 1, high = inf}", "a finite high, not 1 and inf"),
        (WEIGHT + "{low = 0, high = 1, log = true}", "must have a low above 0 for log = true"),
        ('"model" = [0.1]', "search.model is not a setting: write its part, too"),
        ('"evaluation.filter" = ["all", "seen"]', r"evaluation\.filter cannot be searched"),
        ('"data.name" = ["a", "b"]', r"data\.name cannot be searched"),
        ('"data.split_seed" = { low = 1, high = 4 }', r"data\.split_seed cannot be searched"),
        ('"model.dim" = [4, -1]', r"model\.dim must be more than 0.*\(in model\.dim -1\)"),
        ('"model.dim" = { low = 0, high = 4 }', r"model\.dim must be more than 0"),
        ('"loss.label_smoothing" = { low = 0, high = 4 }', r"loss\.label_smoothing must be at l"),
        ('"model.dmi" = { low = 1, high = 4 }', r"model\.dmi is not a setting"),
        (CLASH, r"loss\.margin is for loss.name margin"),
        (f'"loss.block" = [{MANY}]\n"model.dim" = [{MANY}]', "159,201 trials; at most 100,000"),
    ],
)
def test_an_error_in_a_space_is_one_line(
    make_space: MakeSpace, searched: str, message: str
) -> None:
    with pytest.raises(RecipeError, match=message) as caught:
        make_space(searched)
    assert caught.value.exit_code == 2
    assert str(caught.value).count("\n") == 0


def test_a_setting_cannot_be_both_fixed_and_searched(make_space: MakeSpace) -> None:
    with pytest.raises(RecipeError, match=r"--set regularizer\.weight: space\.toml searches it"):
        make_space(WEIGHT + "[1, 2]", "regularizer.weight=1")


def test_the_grid_of_the_paper_is_as_in_the_paper() -> None:
    space = read_space(PAPER)
    assert len(space.trials) == 6 * 5 * 5
    assert {trial.recipe.model.name for trial in space.trials} == {"complex"}
    assert {trial.recipe.regularizer.name for trial in space.trials} == {"l2"}
    sizes = {trial.recipe.training.batch_size for trial in space.trials}
    assert sizes == {100, 200, 500, 1000, 2000}
