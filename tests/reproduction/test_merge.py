"""Result files of several sessions can be put together."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from reproduction.merge import main
from reproduction.trials import SUMMARY

from allneg.recipe import Recipe
from allneg.reproduce import Cell, Results

Entry = Callable[..., dict[str, Any]]
CELL = Cell("table1", "tiny", "complex")
RECIPE = Recipe()


def test_files_and_seeds_that_are_missing_are_added(tmp_path: Path, entry: Entry) -> None:
    here, there = Results(tmp_path / "here"), Results(tmp_path / "there")
    other = Cell("norms", "tiny", "norms/transe-l1")
    here.add(CELL, RECIPE, entry(0.1, 0))
    there.add(CELL, RECIPE, entry(0.2, 0))  # the seed that is here stays
    there.add(CELL, RECIPE, entry(0.3, 1))
    there.add(other, RECIPE, entry(0.4, 2))
    (there.folder / SUMMARY).write_text("[]")
    for _ in range(2):  # the second time changes nothing
        assert main([str(there.folder), str(here.folder)]) == 0
        assert [path.name for path in sorted(here.folder.rglob("*.json"))] == [
            "complex.json",
            "transe-l1.json",
        ]
        found, added = here.get(CELL), here.get(other)
        assert found is not None
        assert [(old["seed"], old["mrr"]) for old in found.seeds] == [(0, 0.1), (1, 0.3)]
        assert added is not None
        assert added.values("mrr") == [0.4]


def test_a_result_of_another_recipe_is_left_out(
    tmp_path: Path, entry: Entry, capsys: pytest.CaptureFixture[str]
) -> None:
    here, there = Results(tmp_path / "here"), Results(tmp_path / "there")
    here.add(CELL, RECIPE, entry(0.1, 0))
    there.add(CELL, RECIPE.with_settings(["model.dim=7"]), entry(0.2, 1))
    assert main([str(there.folder), str(here.folder)]) == 1
    assert f"{there.path(CELL)}: left out" in capsys.readouterr().err
    found = here.get(CELL)
    assert found is not None
    assert found.values("seed") == [0]


def test_a_damaged_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "complex.json").write_text("{}")
    assert main([str(tmp_path / "there"), str(tmp_path / "here")]) != 0
