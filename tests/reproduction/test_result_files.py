"""Result files: what they hold, when they count, and how they are checked."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from reproduction.__main__ import ROOT
from reproduction.published import Published, tried

from allneg.errors import RunError
from allneg.recipe import Recipe
from allneg.reproduce import CELLS, Cell, Result, Results, comparable
from allneg.reproduce import entry as entry_of
from allneg.runs import Run

Entry = Callable[..., dict[str, Any]]
CELL = Cell("table1", "tiny", "complex")
RECIPE = Recipe()
COMMITTED = Published(Results(ROOT / "results"), CELLS, ROOT / "docs")
FILTERS = {COMMITTED.results: "all", COMMITTED.earlier: "seen"}  # evaluation.filter of its files


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


def test_every_committed_file_belongs_to_a_cell_and_can_be_read() -> None:
    paths = set()
    for cell in CELLS:
        for results, rule in FILTERS.items():
            found = tried(results, cell)
            if (result := results.get(cell)) is not None:
                found[results.path(cell)] = result
                assert rule == "seen" or result.is_of(cell.recipe()), cell.name
            if cell.row == "ablation/selection":
                rule = "seen"
            for path, result in found.items():
                assert not result.quick, path
                assert (result.data, result.row) == (cell.data, cell.row), path
                assert result.made_by.evaluation.filter == rule, path
            paths |= found.keys()
    assert paths == set(COMMITTED.results.folder.rglob("*.json"))


def test_the_published_recipe_has_the_best_validation_mrr() -> None:
    """Measured on the seeds that both recipes were trained with."""
    for cell, results in itertools.product(CELLS, FILTERS):
        for path, other in tried(results, cell).items():
            chosen = results.get(cell)
            assert chosen is not None
            pairs = [
                (mine["valid_mrr"], entry["valid_mrr"])
                for entry in other.seeds
                if (mine := chosen.seed(entry["seed"])) is not None
            ]
            assert pairs, path
            assert fmean(mine for mine, _ in pairs) >= fmean(valid for _, valid in pairs), path


def test_cells_with_the_same_recipe_have_the_same_runs() -> None:
    found = dict[tuple[str, Recipe], Result]()
    for cell, results in itertools.product(CELLS, FILTERS):
        if not cell.members and (result := results.get(cell)) is not None:
            other = found.setdefault((cell.data, comparable(result.made_by)), result)
            assert other.seeds == result.seeds, cell.name


def test_an_entry_holds_what_a_run_reached_and_where(toy_run: Run) -> None:
    found = entry_of(toy_run)
    assert found["mrr"] == toy_run.report.mrr
    assert found["hits"].keys() == {"1", "3", "10"}
    assert found["by_side"].keys() == {"head", "tail"}
    assert "both sides" in found["protocol"]["in_words"]
    assert found["seed"] == toy_run.recipe.training.seed
    assert found["epochs"] == len(toy_run.metrics())
    assert found["valid_mrr"] == max(point["valid_mrr"] for point in found["curve"])
    assert found["best_epoch"] in {point["epoch"] for point in found["curve"]}
    assert found["seconds"] > 0
    assert found["peak_bytes"] > 1 << 20
    assert found["machine"]["device"].startswith("CPU, ")
    assert found["machine"]["allneg"]
    assert json.dumps(found)


def test_seeds_are_sorted_and_the_newer_entry_counts(results: Results, entry: Entry) -> None:
    for mrr, seed in ((0.3, 2), (0.1, 0), (0.2, 2)):
        results.add(CELL, RECIPE, entry(mrr, seed))
    found = results.get(CELL)
    assert found is not None
    assert [(old["seed"], old["mrr"]) for old in found.seeds] == [(0, 0.1), (2, 0.2)]
    assert found.summary()["mrr"] == pytest.approx(0.15)
    assert found.summary()["spread"] == pytest.approx(0.0707, abs=1e-4)


def test_results_of_another_recipe_are_replaced(results: Results, entry: Entry) -> None:
    other = RECIPE.with_settings(["model.dim=7"])
    results.add(CELL, RECIPE, entry(0.1, 0))
    results.add(CELL, other, entry(0.2, 1))
    found = results.get(CELL)
    assert found is not None
    assert found.values("mrr") == [0.2]
    assert found.is_of(other)
    assert not found.is_of(RECIPE)


@pytest.mark.parametrize(
    "setting",
    [
        "training.seed=5",
        "training.save_seconds=1",
        "training.micro_batch=10",
        "data.store=disk",
        "hardware.threads=1",
        "evaluation.block=99",
    ],
)
def test_a_setting_that_changes_no_result_makes_no_other_recipe(setting: str) -> None:
    result = Result("tiny", "complex", RECIPE.to_toml(), [])
    assert result.is_of(RECIPE.with_settings([setting]))
    assert not result.is_of(RECIPE.with_settings(["hardware.precision=bf16"]))


def test_recipes_of_other_versions_can_be_compared() -> None:
    text = RECIPE.to_toml()
    without = "\n".join(line for line in text.splitlines() if "class_weights" not in line)
    assert Result("tiny", "complex", without, []).is_of(RECIPE)  # a setting that came later
    before = Result("tiny", "complex", text.replace('filter = "all"\n', ""), [])
    assert not before.is_of(RECIPE)  # the default was another
    assert before.is_of(RECIPE.with_settings(["evaluation.filter=seen"]))
    renamed = text.replace("[regularizer]", "[penalty]").replace("label_smoothing", "smoothing")
    assert renamed != text
    assert Result("tiny", "complex", renamed, []).is_of(RECIPE)
    assert not Result("tiny", "complex", text + "[gone]\nsetting = 1\n", []).is_of(RECIPE)


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"mrr": None}, "mrr is None"),
        ({"mrr": 17.5}, "mrr is 17.5"),
        ({"mrr": float("nan")}, "mrr is nan"),
        ({"mrr": "0.9"}, "mrr is '0.9'"),
        ({"hits": {}}, "'1' is missing"),
        ({"valid_mrr": -1}, "valid_mrr is -1"),
        ({"seconds": True}, "seconds is True"),
        ({"machine": None}, "damaged"),
        ({"machine": {"device": 3}}, "machine.device is 3"),
    ],
)
def test_a_damaged_entry_is_an_error_that_names_the_file(
    results: Results, entry: Entry, change: dict[str, Any], message: str
) -> None:
    results.add(CELL, RECIPE, entry(0.5))
    path = results.path(CELL)
    content = json.loads(path.read_text())
    content["seeds"][0] |= change
    path.write_text(json.dumps(content))
    with pytest.raises(RunError, match=re.escape(message)) as caught:
        results.get(CELL)
    assert str(caught.value).startswith(f"{path}: damaged (")


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"data": "other"}, "is a full-size result of other/complex; move it away"),
        ({"quick": True}, "is a --quick result of tiny/complex; move it away"),
        ({"recipe": "[data"}, "damaged"),
        ({"recipe": 5}, "recipe is 5"),
        ({"seeds": {}}, "seeds is {}"),
        ({"seeds": []}, "the list of seeds is []"),
        ({"schema_version": 2}, "schema_version is 2"),
        ({"more": 1}, "not a result file"),
    ],
)
def test_a_file_that_does_not_fit_its_cell_is_an_error(
    results: Results, entry: Entry, change: dict[str, Any], message: str
) -> None:
    results.add(CELL, RECIPE, entry(0.5))
    path = results.path(CELL)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=re.escape(message)):
        results.get(CELL)


@pytest.mark.battery(26)
def test_a_repeated_seed_and_a_dangling_link_are_errors(results: Results, entry: Entry) -> None:
    results.add(CELL, RECIPE, entry(0.5))
    path = results.path(CELL)
    content = json.loads(path.read_text())
    path.write_text(json.dumps(content | {"seeds": 2 * content["seeds"]}))
    with pytest.raises(RunError, match=r"the list of seeds is \[0, 0\]"):
        results.get(CELL)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(RunError, match="cannot be read"):
        results.get(CELL)
