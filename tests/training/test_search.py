"""A space's trials: each once, whoever tries them, in whatever order, however often cut off."""

from __future__ import annotations

import hashlib
import json
import math
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from allneg.errors import DataError, Interrupted, RecipeError, RunError
from allneg.recipe import Recipe
from allneg.runs import Run
from allneg.training import fit
from allneg.training.fit import StopAt
from allneg.training.search import Space, read_space, search, standings
from allneg.training.search.rungs import alive, rungs
from allneg.training.search.trial import Place, attempt, data_hash

PAPER = Path(__file__).parents[2] / "recipes" / "search" / "paper-grid.toml"
GRID = """
"optimizer.learning_rate" = [0.5, 0.1]
"regularizer.weight" = [0.1, 0, 0.01]
"""
QUICK = """
[model]
dim = 4
[training]
epochs = 6
batch_size = 8
[evaluation]
every = 2
[hardware]
device = "cpu"
threads = 1
"""
Spaced = Callable[..., Space]


@pytest.fixture
def spaced(tmp_path: Path, tiny_folder: Path) -> Spaced:
    """A space on the tiny graph: `spaced('"model.dim" = [2, 3]', "training.epochs=4")`."""

    def made(searched: str = GRID, *settings: str) -> Space:
        file = tmp_path / "space.toml"
        file.write_text(f"{QUICK}\n[data]\nname = {str(tiny_folder)!r}\n[search]\n{searched}")
        return read_space(file, settings)

    return made


def told(space: Space, out: Path, halving: bool = False) -> list[dict[str, Any]]:
    """How the trials stand, without what a clock decides."""
    return [{**each.to_json(), "seconds": None} for each in standings(space, out, halving)]


def after(steps: int) -> Callable[[], int]:
    """A SIGTERM after so many steps."""
    left = steps

    def stopped_by() -> int:
        nonlocal left
        left -= 1
        return signal.SIGTERM if left < 0 else 0

    return stopped_by


def everything(folder: Path) -> dict[str, tuple[bytes, int]]:
    """All files of a folder, with their content and when it was written."""
    return {
        str(path): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_a_grid_is_every_combination_once(spaced: Spaced) -> None:
    space = spaced()
    assert space.names == ("optimizer.learning_rate", "regularizer.weight")
    assert {tuple(trial.settings.values()) for trial in space.trials} == {
        (rate, weight) for rate in (0.5, 0.1) for weight in (0.1, 0.0, 0.01)
    }
    assert len({trial.id for trial in space.trials}) == 6
    trial = space.trials[0]
    assert trial.recipe.optimizer.learning_rate == trial.settings["optimizer.learning_rate"]
    assert trial.recipe.model.dim == 4


def test_a_trials_id_is_the_hash_of_its_whole_recipe(spaced: Spaced) -> None:
    first = spaced('"regularizer.weight" = [1]').trials[0]
    digest = hashlib.sha256(first.recipe.to_toml().encode()).hexdigest()
    assert first.id == digest[:16]
    assert spaced("regularizer.weight = [1.0, 2]").trials[0].id == first.id
    assert spaced('"regularizer.weight" = [1]', "training.seed=1").trials[0].id != first.id


def test_a_base_lies_under_the_spaces_own_tables(tmp_path: Path) -> None:
    (tmp_path / "bases").mkdir()
    (tmp_path / "bases" / "one.toml").write_text("[model]\nname = 'simple'\ndim = 7\n")
    file = tmp_path / "space.toml"
    file.write_text("base = 'bases/one.toml'\n[model]\ndim = 9\n[search]\n'loss.block' = [4, 5]\n")
    model = read_space(file).recipe.model
    assert (model.name, model.dim) == ("simple", 9)
    assert read_space(file, ["model.dim=3"]).recipe.model.dim == 3


@pytest.mark.parametrize(
    "searched, said",
    [
        ("", r"a table \[search\]"),
        ('"penalty.wieght" = [1]', r"penalty\.wieght is not a setting; did you mean"),
        ('"regularizer.weight" = 1', r"search\.penalty\.weight must be a list"),
        ('"regularizer.weight" = []', r"search\.penalty\.weight lists no value to try"),
        ('"regularizer.weight" = [1, 1.0]', r"lists a value twice"),
        ('"regularizer.weight" = {low = 0, high = 1}', r"a range: say how many to try by --trials"),
        ('regularizer.weight = {low = 0, high = 1}', r"a range: say how many to try by --trials"),
        ('"regularizer.weight" = {low = 0}', r"a range such as \{ low = 1e-4"),
        ('"regularizer.weight" = {low = 0, high = 1, step = 1}', "weight has no step: a range is"),
        ('"regularizer.weight" = {low = "a", high = 1}', r"must have numbers as its ends"),
        ('"regularizer.weight" = {low = 1, high = 2, log = 3}', r"must have true or false as its log"),  # noqa: E501
        ('"regularizer.weight" = {low = 1, high = 1}', r"must have a low below its high, not 1 and 1"),  # noqa: E501
        ('"regularizer.weight" = {low = 1, high = inf}', r"must have finite ends, not 1 and inf"),
        ('"model" = [0.1]', r"search.model is no setting: write its part, too"),
        ('"regularizer.weight" = {low = 0, high = 1, log = true}', r"must begin above 0 for log"),
        ('"data.name" = ["a", "b"]', r"data\.name cannot be searched"),
        ('"model.dim" = [4, -1]', r"model\.dim must be more than 0.*\(in model\.dim -1\)"),
        ('"loss.block" = ' + str(list(range(1, 400))) + '\n"model.dim" = ' + str([*range(1, 400)]),
         r"159,201 trials; at most 100,000"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_space_is_named(spaced: Spaced, searched: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said) as caught:
        spaced(searched)
    assert caught.value.exit_code == 2
    assert str(caught.value).count("\n") == 0


def test_a_setting_cannot_be_both_fixed_and_searched(spaced: Spaced) -> None:
    with pytest.raises(RecipeError, match=r"--set penalty\.weight: space\.toml searches it"):
        spaced(GRID, "regularizer.weight=1")


def test_the_papers_grid_is_the_one_in_the_paper() -> None:
    space = read_space(PAPER)
    assert len(space.trials) == 6 * 5 * 5
    assert {trial.recipe.model.name for trial in space.trials} == {"complex"}
    assert {trial.recipe.regularizer.name for trial in space.trials} == {"l2"}
    assert {trial.recipe.training.batch_size for trial in space.trials} == {
        100, 200, 500, 1000, 2000,
    }  # fmt: skip


def test_trials_are_ordinary_runs_and_test_is_never_ranked(
    spaced: Spaced, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = sys.modules["allneg.training.fit"]
    splits, honest = [], module.evaluate

    def noted(*arguments: Any, **more: Any) -> Any:
        splits.append(arguments[3])
        return honest(*arguments, **more)

    monkeypatch.setattr(module, "evaluate", noted)
    space, out = spaced(), tmp_path / "out"
    search(space, out)
    assert set(splits) == {"valid"}
    said = json.loads((out / "results.json").read_text())
    assert [each["valid_mrr"] for each in said["trials"]] == sorted(
        (each["valid_mrr"] for each in said["trials"]), reverse=True
    )
    assert len(said["trials"]) == 6
    for each in said["trials"]:
        run = Run.open(out / "trials" / each["trial"])
        assert each["state"] == run.status["state"] == "finished"
        assert run.report.protocol["split"] == "valid"
        assert each["valid_mrr"] == run.report.mrr
        assert each["best_epoch"] == run.status["best_epoch"]
        assert each["settings"]["regularizer.weight"] == run.recipe.regularizer.weight
        assert each["seconds"] > 0


@pytest.mark.battery(36)
def test_a_finished_search_is_left_alone(spaced: Spaced, tmp_path: Path) -> None:
    space, out = spaced(), tmp_path / "out"
    search(space, out)
    before, results = everything(out / "trials"), (out / "results.json").read_bytes()
    search(space, out)
    assert everything(out / "trials") == before
    assert (out / "results.json").read_bytes() == results


def test_a_wider_space_tries_only_what_is_new(spaced: Spaced, tmp_path: Path) -> None:
    out = tmp_path / "out"
    search(spaced('"regularizer.weight" = [0.1]'), out)
    before = everything(out / "trials")
    search(spaced('"regularizer.weight" = [0, 0.1]'), out)
    assert before.items() <= everything(out / "trials").items()
    assert len(list((out / "trials").iterdir())) == 2


@pytest.mark.battery(36)
def test_the_order_of_trials_does_not_matter(spaced: Spaced, tmp_path: Path) -> None:
    one, other = spaced(), spaced(GRID.replace("0.5, 0.1", "0.1, 0.5"))
    assert one.trials != other.trials
    search(one, tmp_path / "one")
    search(other, tmp_path / "other")
    assert told(one, tmp_path / "one") == told(other, tmp_path / "other")


@pytest.mark.battery(30)
def test_a_trial_that_diverges_is_noted_and_the_search_goes_on(
    spaced: Spaced, tmp_path: Path
) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1")
    space = spaced('"optimizer.learning_rate" = [1e30, 0.1]', *settings)
    out = tmp_path / "out"
    search(space, out)
    good, bad = standings(space, out)
    assert (good.state, bad.state) == ("finished", "diverged")
    assert bad.trial.settings["optimizer.learning_rate"] == 1e30
    assert bad.valid_mrr is None
    assert bad.reason is not None
    assert "not finite" in bad.reason
    before = everything(out / "trials")
    search(space, out)
    assert everything(out / "trials") == before


@pytest.mark.battery(31)
@pytest.mark.parametrize("halving", [False, True])
def test_a_trial_that_is_too_large_is_noted_and_the_search_goes_on(
    spaced: Spaced, tmp_path: Path, halving: bool
) -> None:
    space, out = spaced(f'"model.dim" = [{10**15}, 4]'), tmp_path / "out"
    search(space, out, halving=halving)
    good, bad = standings(space, out, halving)
    assert (good.state, bad.state) == ("finished", "too large")
    assert good.trial.settings["model.dim"] == 4
    assert bad.valid_mrr is None
    assert bad.reason is not None
    assert "out of memory" in bad.reason


@pytest.mark.battery(36)
def test_a_search_that_was_stopped_goes_on_from_the_checkpoint(
    spaced: Spaced, tmp_path: Path
) -> None:
    space, out = spaced(), tmp_path / "out"
    with pytest.raises(Interrupted, match="the same command goes on") as caught:
        search(space, out, stopped_by=after(50))  # a trial takes 30 steps
    assert caught.value.exit_code == 143
    states = [each.state for each in standings(space, out)]
    assert states == ["finished", "paused", *["waiting"] * 4]
    cut = next(each for each in standings(space, out) if each.state == "paused")
    run = Run.open(out / "trials" / cut.trial.id)
    before = run.metrics()
    assert len(before) in (3, 4)
    search(space, out)
    # Had it begun again, the clock would have shown other seconds.
    assert run.metrics()[: len(before)] == before
    search(space, tmp_path / "straight")
    assert told(space, out) == told(space, tmp_path / "straight")


@pytest.mark.battery(36)
def test_a_trial_that_another_process_has_is_left_to_it(spaced: Spaced, tmp_path: Path) -> None:
    space, out = spaced('"model.dim" = [2, 3]'), tmp_path / "out"
    (out / "locks").mkdir(parents=True)
    theirs, ours = (Place(out, trial) for trial in space.trials)
    tries = 0

    def stopped_by() -> int:
        nonlocal tries
        tries += 1
        return signal.SIGTERM if ours.result() else 0

    with FileLock(theirs.lock):
        assert [each.state for each in standings(space, out)] == ["running", "waiting"]
        with pytest.raises(Interrupted):
            search(space, out, stopped_by=stopped_by)
        assert not theirs.folder.exists()
    assert ours.result() is not None
    assert tries > 1
    search(space, out)
    assert theirs.result() is not None


@pytest.mark.battery(36)
def test_what_was_cut_off_while_it_was_made_is_made_again(spaced: Spaced, tmp_path: Path) -> None:
    space, out = spaced('"model.dim" = [2]'), tmp_path / "out"
    place = Place(out, space.trials[0])
    place.folder.mkdir(parents=True)
    (place.folder / "entities.txt").write_text("half a na")
    search(space, out)
    assert place.result() is not None


@pytest.mark.parametrize("damage", ["", "{}", '{"trial": "another"}', "[" * 9])
def test_a_damaged_result_does_not_count_as_done(
    spaced: Spaced, tmp_path: Path, damage: str
) -> None:
    space, out = spaced('"model.dim" = [2]'), tmp_path / "out"
    search(space, out)
    place = Place(out, space.trials[0])
    whole = place.result()
    (place.folder / "result.json").write_text(damage)
    assert place.result() is None
    search(space, out)
    assert place.result() == whole


def test_data_that_has_changed_is_not_mixed_with_what_was_tried(
    spaced: Spaced, tmp_path: Path, tiny_folder: Path
) -> None:
    space, out = spaced('"model.dim" = [2]'), tmp_path / "out"
    search(space, out)
    result = Place(out, space.trials[0]).result()
    assert result is not None
    with (tiny_folder / "train.tsv").open("a") as file:
        file.write("Italy\tborders\tSpain\n")
    with pytest.raises(RunError, match=f"trained on other data \\({result.data}, now [0-9a-f]"):
        search(space, out)
    (out / "trials" / space.trials[0].id / "result.json").unlink()
    with pytest.raises(RunError, match="trained on other data"):
        search(space, out)


def test_a_search_needs_something_to_select_by(
    spaced: Spaced, tmp_path: Path, tiny_folder: Path
) -> None:
    (tiny_folder / "valid.tsv").unlink()
    with pytest.raises(DataError, match="valid has no triples, and a search selects by"):
        search(spaced(), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_paused_run_that_goes_on_is_the_straight_one(
    made: Callable[..., Run], trained: Callable[..., Run], content: Callable[[Run], dict[str, Any]]
) -> None:
    run = made()
    assert fit(run, aim=StopAt(epochs=4)) is None
    assert (run.status["state"], len(run.metrics())) == ("interrupted", 4)
    fit(run)
    assert content(run) == content(trained())


NINE = '"optimizer.learning_rate" = [0.5, 0.1, 0.01]\n"regularizer.weight" = [0.1, 0, 0.01]'
LONG = ("training.epochs=18", "evaluation.patience=100", "training.batch_size=40")


def test_rungs_are_epochs_at_which_valid_is_ranked(spaced: Spaced) -> None:
    assert rungs(spaced(NINE, *LONG)) == [2, 6]
    assert rungs(spaced(NINE, "training.epochs=100", "evaluation.every=5")) == [15, 35]
    assert rungs(spaced(NINE, "training.epochs=2")) == []
    with pytest.raises(RecipeError, match=r"--halving shares out the epochs; fix training\.epochs"):
        rungs(spaced('"training.epochs" = [2, 3]'))


def test_halving_keeps_the_best_third_and_they_end_as_if_never_paused(
    spaced: Spaced, tmp_path: Path
) -> None:
    space = spaced(NINE, *LONG)
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    search(space, whole)
    search(space, halved, halving=True)
    found = {each.trial.id: each for each in standings(space, halved, halving=True)}
    trials, left = list(space.trials), 9
    for epochs in (2, 6):
        # What the whole search had at that epoch decides who should have gone on.
        then = {trial.id: _best_until(Run.open(whole / "trials" / trial.id), epochs)
                for trial in trials}  # fmt: skip
        trials.sort(key=lambda trial: (-then[trial.id], trial.id))
        left = math.ceil(left / 3)
        for trial in trials[left:]:
            assert (found[trial.id].state, found[trial.id].epochs) == ("dropped", epochs)
        trials = trials[:left]
    assert list(alive(space, halved)) == trials
    assert len(trials) == 1
    (winner,) = (each for each in told(space, halved, True) if each["state"] == "finished")
    assert winner in told(space, whole)
    assert json.loads((halved / "results.json").read_text())["halving"] == [2, 6]
    before = everything(halved / "trials")
    search(space, halved, halving=True)
    assert everything(halved / "trials") == before


def test_halving_after_the_whole_search_compares_at_equal_epochs(
    spaced: Spaced, tmp_path: Path
) -> None:
    space = spaced('"regularizer.weight" = [0, 0.1, 1, 10]', *LONG)
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    search(space, whole)
    search(space, whole, halving=True)
    search(space, halved, halving=True)
    assert alive(space, whole) == alive(space, halved)


def test_a_diverged_trial_never_climbs_a_rung(spaced: Spaced, tmp_path: Path) -> None:
    settings = ("optimizer.name=sgd", "model.scale=1", *LONG)
    space = spaced('"optimizer.learning_rate" = [1e30, 2e30, 3e30, 0.1]', *settings)
    search(space, tmp_path / "out", halving=True)
    states = [each.state for each in standings(space, tmp_path / "out", halving=True)]
    assert states == ["finished", *["diverged"] * 3]


def test_without_halving_what_was_dropped_is_trained_to_the_end(
    spaced: Spaced, tmp_path: Path
) -> None:
    space = spaced('"regularizer.weight" = [0, 0.1, 1]', *LONG)
    out = tmp_path / "out"
    search(space, out, halving=True)
    search(space, out)
    search(space, tmp_path / "straight")
    assert told(space, out) == told(space, tmp_path / "straight")


def test_an_attempt_says_whether_the_trial_was_free(
    spaced: Spaced, tmp_path: Path, tiny_graph: Any
) -> None:
    place = Place(tmp_path / "out", spaced('"model.dim" = [2]').trials[0])
    place.lock.parent.mkdir(parents=True)
    with FileLock(place.lock):
        assert not attempt(place, tiny_graph, lambda: 0)
    assert attempt(place, tiny_graph, lambda: 0)
    result = place.result()
    assert result is not None
    assert result.data == data_hash(tiny_graph)
    assert Recipe.read(place.folder / "recipe.toml") == place.trial.recipe


def _best_until(run: Run, epochs: int) -> float:
    ranked = [each for each in run.metrics() if "valid" in each and each["epoch"] <= epochs]
    return max(each["valid"]["mrr"] for each in ranked)
