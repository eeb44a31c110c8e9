"""What is trained for a number, where, and in which order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from allneg.errors import RecipeError
from allneg.graph import read_graph
from allneg.paper import NUMBERS, Number
from allneg.paper.quick import small, small_data
from allneg.paper.tasks import Task, tasks
from allneg.recipe import Data, Recipe

RECIPES = Path(__file__).parents[2] / "recipes"


def by_name(*names: str) -> list[Number]:
    return [each for each in NUMBERS if each.name in names]


def test_all_numbers_come_with_the_first_seed_before_any_with_the_next(tmp_path: Path) -> None:
    numbers = by_name("wn18/complex", "wn18/simple")
    found = tasks(numbers, (4, 1), RECIPES, tmp_path, quick=False)
    assert [each.name for each in found] == [
        "wn18/simple, seed 4",
        "wn18/complex, seed 4",
        "wn18/simple, seed 1",
        "wn18/complex, seed 1",
    ]


def test_the_figure_has_three_seeds_unless_told_otherwise(tmp_path: Path) -> None:
    numbers = by_name("wn18/complex", "fb15k/figure1/all")
    found = tasks(numbers, None, RECIPES, tmp_path, quick=False)
    assert [(each.number.row, each.seed) for each in found] == [
        ("complex", 0), ("figure1/all", 0), ("figure1/all", 1), ("figure1/all", 2),
    ]  # fmt: skip


def test_the_same_recipe_has_one_run_and_another_recipe_another(tmp_path: Path) -> None:
    one = Task(Number("norms", "fb15k", "one"), Recipe(), tmp_path)
    twin = Task(Number("table2", "fb15k", "twin"), Recipe(), tmp_path)
    other = Task(one.number, Recipe().with_settings(["model.dim=7"]), tmp_path)
    seed = Task(one.number, Recipe().with_settings(["training.seed=7"]), tmp_path)
    assert one.folder == twin.folder
    assert len({one.folder, other.folder, seed.folder}) == 3


def test_a_recipe_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"simple\.toml: there is no such recipe"):
        tasks(by_name("wn18/simple"), None, tmp_path, tmp_path, quick=False)


def test_a_new_run_is_trained_and_one_that_is_there_goes_on(tmp_path: Path) -> None:
    task = Task(Number("table1", "tiny", "row"), Recipe(), tmp_path)
    task.folder.mkdir(parents=True)
    (task.folder / "entities.txt").write_text("half a run")
    assert task.arguments()[:2] == ["train", "countries"]
    assert not task.folder.exists()
    assert Recipe.read(task.arguments()[3]) == task.recipe
    task.folder.mkdir()
    (task.folder / "run.json").write_text('{"format_version": 1, "data": "x"}')
    (task.folder / "recipe.toml").write_text(task.recipe.to_toml())
    assert task.arguments()[:2] == ["resume", str(task.folder)]


def test_more_entities_and_more_epochs_are_more_work(tmp_path: Path) -> None:
    number = Number("table1", "wn18", "row")
    recipe = Recipe().with_settings(["data.name=wn18"])
    base = Task(number, recipe, tmp_path)
    longer = Task(number, recipe.with_settings(["training.epochs=200"]), tmp_path)
    few = Task(
        number, recipe.with_settings(["loss.negatives=per_query", "loss.n_negatives=10"]), tmp_path
    )
    assert longer.work == 2 * base.work
    assert few.work < base.work / 10


def test_quick_data_is_the_facts_among_frequent_entities(tmp_path: Path) -> None:
    path = small_data(Data(), tmp_path / "countries")
    whole, part = read_graph("countries", Data()), read_graph(str(path), Data(name=str(path)))
    assert 0 < part.n_entities < whole.n_entities
    names = whole.vocabulary.entities
    facts = {(names[h], names[t]) for h, _, t in whole.train}
    mine = part.vocabulary.entities
    assert {(mine[h], mine[t]) for h, _, t in part.train} <= facts
    assert len(part.valid)
    assert len(part.test)
    before = (path / "train.txt").stat().st_mtime_ns
    assert small_data(Data(), path) == path
    assert (path / "train.txt").stat().st_mtime_ns == before


def test_a_quick_recipe_is_small_and_its_sample_shrinks_with_the_data(tmp_path: Path) -> None:
    recipe = Recipe().with_settings(
        ["loss.negatives=shared", "loss.n_negatives=7000", "training.epochs=90"]
    )
    found = small(recipe, tmp_path, 14_000)
    assert found.loss.n_negatives == 1000
    assert found.model.dim == 16
    assert found.training.epochs == 3
    assert found.data.name == str(tmp_path)
    own = replace(recipe, loss=replace(recipe.loss, negatives="per_query", count=256))
    assert small(own, tmp_path, 14_000).loss.n_negatives == 256
