"""Result files: what they keep of a run, when they count, and how they travel."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from allneg.errors import RunError
from allneg.paper import NUMBERS, Number, Result, Results
from allneg.paper.results import entry as entry_of
from allneg.paper.results import what_counts
from allneg.recipe import Recipe
from allneg.runs import Run

ROOT = Path(__file__).parents[2]
NUMBER = Number("table1", "tiny", "complex")
RECIPE = Recipe()


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results")


@pytest.mark.parametrize("path", sorted((ROOT / "results").rglob("*.json")), ids=str)
def test_a_committed_result_is_a_numbers_and_can_be_read(path: Path) -> None:
    by_name = {each.name: each for each in NUMBERS}
    name = str(path.relative_to(ROOT / "results"))[:-5]
    results = Results(ROOT / "results")
    if name.startswith("tried/"):
        number = by_name[name[len("tried/") :].rpartition("-")[0]]
        result: Result | None = results.tried(number)[path]
    else:
        number = by_name[name]
        result = results.get(number)
    assert result is not None
    assert not result.quick
    assert result.name == number.name
    assert result.values("mrr")
    Recipe.from_tables(tomllib.loads(result.recipe))


def test_the_published_recipe_is_the_one_that_valid_likes_best() -> None:
    """By the seeds that both were trained with."""
    results = Results(ROOT / "results")
    for number in NUMBERS:
        for path, other in results.tried(number).items():
            chosen = results.get(number)
            assert chosen is not None
            pairs = [
                (mine["valid_mrr"], each["valid_mrr"])
                for each in other.seeds
                if (mine := chosen.seed(each["seed"])) is not None
            ]
            assert pairs, path
            assert fmean(mine for mine, _ in pairs) >= fmean(valid for _, valid in pairs), path


def test_an_entry_says_what_a_run_reached_and_where(toy_run: Run) -> None:
    said = entry_of(toy_run)
    assert said["mrr"] == toy_run.report.mrr
    assert said["hits"].keys() == {"1", "3", "10"}
    assert said["by_side"].keys() == {"head", "tail"}
    assert "both sides" in said["protocol"]["in_words"]
    assert said["seed"] == toy_run.recipe.training.seed
    assert said["epochs"] == len(toy_run.metrics())
    assert said["valid_mrr"] == max(each["valid_mrr"] for each in said["curve"])
    assert said["best_epoch"] in {each["epoch"] for each in said["curve"]}
    assert said["seconds"] > 0
    assert said["peak_bytes"] > 1 << 20
    assert said["machine"]["device"].startswith("CPU, ")
    assert said["machine"]["allneg"]
    assert json.dumps(said)


def test_seeds_are_kept_in_order_and_the_newer_entry_counts(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    for mrr, seed in ((0.3, 2), (0.1, 0), (0.2, 2)):
        results.add(NUMBER, RECIPE, entry(mrr, seed))
    found = results.get(NUMBER)
    assert found is not None
    assert [(each["seed"], each["mrr"]) for each in found.seeds] == [(0, 0.1), (2, 0.2)]
    assert results.has(NUMBER, RECIPE, 2)
    assert not results.has(NUMBER, RECIPE, 1)


def test_results_of_another_recipe_do_not_count_and_are_set_aside(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    results.add(NUMBER, RECIPE, entry(0.1, 0))
    other = RECIPE.with_settings(["model.dim=7"])
    assert not results.has(NUMBER, other, 0)
    results.add(NUMBER, other, entry(0.2, 1))
    found = results.get(NUMBER)
    assert found is not None
    assert found.values("mrr") == [0.2]
    assert found.is_of(other)
    assert not found.is_of(RECIPE)
    ((path, aside),) = results.tried(NUMBER).items()
    assert path == results.folder / "tried" / "tiny" / "complex-1.json"
    assert aside.values("mrr") == [0.1]
    assert not results.tried(replace(NUMBER, row="comp"))
    results.add(NUMBER, RECIPE, entry(0.3, 0))
    assert [each.values("mrr") for each in results.tried(NUMBER).values()] == [[0.1], [0.2]]
    path.unlink()  # what is left keeps its file
    results.add(NUMBER, other, entry(0.4, 0))
    assert [each.values("mrr") for each in results.tried(NUMBER).values()] == [[0.2], [0.3]]


def test_quick_results_are_not_set_aside(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    quick = replace(results, quick=True)
    quick.add(NUMBER, RECIPE, entry(0.1))
    quick.add(NUMBER, RECIPE.with_settings(["model.dim=7"]), entry(0.2))
    assert not quick.tried(NUMBER)


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
def test_what_changes_no_number_makes_no_other_recipe(
    setting: str, entry: Callable[..., dict[str, Any]]
) -> None:
    result = Result("tiny", "complex", RECIPE.to_toml(), (entry(0.1),))
    assert result.is_of(RECIPE.with_settings([setting]))
    assert not result.is_of(RECIPE.with_settings(["hardware.precision=bf16"]))


def test_a_setting_that_came_later_makes_no_other_recipe() -> None:
    text = "\n".join(line for line in RECIPE.to_toml().splitlines() if "class_weights" not in line)
    assert Result("tiny", "complex", text, ()).is_of(RECIPE)
    gone = RECIPE.to_toml() + "[gone]\nsetting = 1\n"
    assert not Result("tiny", "complex", gone, ()).is_of(RECIPE)
    assert not Result("tiny", "complex", "no TOML", ()).is_of(RECIPE)


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
def test_a_result_that_was_changed_is_refused_with_its_file(
    results: Results, entry: Callable[..., dict[str, Any]], change: dict[str, Any], message: str
) -> None:
    results.add(NUMBER, RECIPE, entry(0.5))
    path = NUMBER.result_file(results.folder)
    said = json.loads(path.read_text())
    said["seeds"][0] |= change
    path.write_text(json.dumps(said))
    with pytest.raises(RunError, match=re.escape(message)) as caught:
        results.get(NUMBER)
    assert str(caught.value).startswith(f"{path}: damaged (")


@pytest.mark.battery(26)
@pytest.mark.parametrize(
    "change, message",
    [
        ({"data": "other"}, "is the result of other/complex"),
        ({"quick": True}, "is of a small size (--quick), as the others are not"),
        ({"recipe": "[data"}, "damaged"),
        ({"recipe": 5}, "recipe is 5"),
        ({"seeds": {}}, "seeds is {}"),
    ],
)
def test_a_result_that_is_not_the_numbers_is_refused_with_its_file(
    results: Results, entry: Callable[..., dict[str, Any]], change: dict[str, Any], message: str
) -> None:
    results.add(NUMBER, RECIPE, entry(0.5))
    path = NUMBER.result_file(results.folder)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RunError, match=re.escape(message)):
        results.get(NUMBER)


@pytest.mark.battery(26)
def test_a_seed_that_is_there_twice_and_a_link_that_leads_nowhere_are_refused(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    results.add(NUMBER, RECIPE, entry(0.5))
    path = NUMBER.result_file(results.folder)
    said = json.loads(path.read_text())
    path.write_text(json.dumps(said | {"seeds": 2 * said["seeds"]}))
    with pytest.raises(RunError, match=r"its seeds are \[0, 0\]"):
        results.get(NUMBER)
    path.unlink()
    path.symlink_to(path)
    with pytest.raises(RunError, match="cannot be read"):
        results.get(NUMBER)


def test_two_numbers_by_one_recipe_share_a_result(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    twin, elsewhere = Number("norms", "tiny", "twin"), Number("norms", "other", "twin")
    results.add(NUMBER, RECIPE, entry(0.4, 3))
    numbers = (NUMBER, twin, elsewhere)
    found = results.borrowed(twin, RECIPE, 3, numbers)
    assert found is not None
    assert found["mrr"] == 0.4
    assert results.borrowed(twin, RECIPE, 4, numbers) is None
    assert results.borrowed(elsewhere, RECIPE, 3, numbers) is None


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    folder = tmp_path / "recipes" / "tiny"
    folder.mkdir(parents=True)
    (folder / "complex.toml").write_text(RECIPE.to_toml())
    return folder.parent


def test_a_bundle_brings_results_from_elsewhere(
    results: Results, recipes: Path, tmp_path: Path, entry: Callable[..., dict[str, Any]]
) -> None:
    away, bundle = Results(tmp_path / "away"), tmp_path / "out" / "bundle.json"
    results.add(NUMBER, RECIPE, entry(0.1, 0))
    away.add(NUMBER, RECIPE, entry(0.2, 1))
    away.bundle([NUMBER, Number("table1", "tiny", "missing")], bundle)
    assert list(results.take(bundle, [NUMBER], recipes)) == []
    found = results.get(NUMBER)
    assert found is not None
    assert found.values("mrr") == [0.1, 0.2]


def test_a_bundle_brings_what_was_tried_too(
    results: Results, recipes: Path, tmp_path: Path, entry: Callable[..., dict[str, Any]]
) -> None:
    away, bundle = Results(tmp_path / "away"), tmp_path / "bundle.json"
    for dim, mrr in ((5, 0.1), (6, 0.2)):
        away.add(NUMBER, RECIPE.with_settings([f"model.dim={dim}"]), entry(mrr))
    away.add(NUMBER, RECIPE, entry(0.3))
    away.bundle([NUMBER], bundle)
    for _ in range(2):
        list(results.take(bundle, [NUMBER], recipes))
        assert results.get(NUMBER) == away.get(NUMBER)
        assert [*results.tried(NUMBER).values()] == [*away.tried(NUMBER).values()]


def test_a_bundle_of_an_older_recipe_replaces_nothing_of_todays(
    results: Results, recipes: Path, tmp_path: Path, entry: Callable[..., dict[str, Any]]
) -> None:
    away, bundle = Results(tmp_path / "away"), tmp_path / "bundle.json"
    older = RECIPE.with_settings(["model.dim=7"])
    away.add(NUMBER, older, entry(0.2, 1))
    away.bundle([NUMBER], bundle)
    assert list(results.take(bundle, [NUMBER], recipes)) == []  # better than nothing
    results.add(NUMBER, RECIPE, entry(0.1, 0))
    for _ in range(2):  # set aside when it was replaced; once is enough
        (line,) = results.take(bundle, [NUMBER], recipes)
        assert line.startswith("tiny/complex: not by ")
        assert line.endswith("; put with what was tried")
        assert [each.values("mrr") for each in results.tried(NUMBER).values()] == [[0.2]]
    found = results.get(NUMBER)
    assert found is not None
    assert found.values("mrr") == [0.1]


def test_a_bundle_of_settings_that_are_not_known_here_is_taken_as_another_recipes(
    results: Results, recipes: Path, tmp_path: Path, entry: Callable[..., dict[str, Any]]
) -> None:
    results.add(NUMBER, RECIPE.with_settings(["model.dim=7"]), entry(0.1))
    gone = RECIPE.to_toml() + "[gone]\nsetting = 1\n"
    new = Result("tiny", "complex", gone, (entry(0.2),))
    bundle = tmp_path / "bundle.json"
    bundle.write_text(json.dumps({"schema_version": 1, "results": [new.to_json()]}))
    assert list(results.take(bundle, [NUMBER], recipes)) == []
    assert results.get(NUMBER) == new
    assert [each.values("mrr") for each in results.tried(NUMBER).values()] == [[0.1]]


def test_quick_and_unknown_results_are_not_taken(
    results: Results, recipes: Path, tmp_path: Path, entry: Callable[..., dict[str, Any]]
) -> None:
    bundle, unknown = tmp_path / "bundle.json", replace(NUMBER, row="else")
    away = Results(tmp_path / "away", quick=True)
    away.add(NUMBER, RECIPE, entry(0.2))
    away.bundle([NUMBER], bundle)
    assert list(results.take(bundle, [NUMBER], recipes)) == ["tiny/complex: a quick result; left"]
    away = Results(tmp_path / "far away")
    away.add(unknown, RECIPE, entry(0.2))
    away.bundle([unknown], bundle)
    assert list(results.take(bundle, [NUMBER], recipes)) == ["tiny/else: no such number; left"]
    assert results.get(NUMBER) is None


@pytest.mark.parametrize(
    "said, message",
    [
        ("[]", "not a bundle"),
        ('{"results": [{}]}', "not a result file"),
        ('{"results": 1}', "not a bundle"),
        ("{", "not JSON"),
    ],
)
def test_a_file_that_is_no_bundle_is_refused(
    results: Results, tmp_path: Path, said: str, message: str
) -> None:
    path = tmp_path / "bundle.json"
    path.write_text(said)
    with pytest.raises(RunError, match=message):
        list(results.take(path, [NUMBER], tmp_path))


def test_another_schema_version_is_refused(
    results: Results, entry: Callable[..., dict[str, Any]]
) -> None:
    results.add(NUMBER, RECIPE, entry(0.2))
    path = NUMBER.result_file(results.folder)
    path.write_text(path.read_text().replace('"schema_version": 1', '"schema_version": 2'))
    with pytest.raises(RunError, match="schema version 2 is not known"):
        results.get(NUMBER)


def test_numbers_that_one_recipe_makes_have_the_same_runs() -> None:
    results, found = Results(ROOT / "results"), dict[tuple[str, str], Result]()
    for number in NUMBERS:
        if (result := results.get(number)) is not None and (recipe := result.parsed()) is not None:
            other = found.setdefault((number.data, what_counts(recipe).to_toml()), result)
            assert other.seeds == result.seeds, number.name
    assert len(found) < sum(results.get(number) is not None for number in NUMBERS)
