from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from allneg.evaluation import evaluate
from allneg.graph import Graph
from allneg.recipe import Recipe
from allneg.runs import Run

Command = Callable[..., Any]  # runs `allneg` with these arguments


@pytest.fixture
def other_run(trained: Callable[..., Run]) -> Run:
    """A run on the same data with another model."""
    return trained("model.name=distmult")


def test_compare_prints_the_difference_and_its_interval(
    allneg: Command, toy_run: Run, other_run: Run
) -> None:
    done = allneg("compare", toy_run.folder, other_run.folder, "--device", "cpu")
    assert done.code == 0
    assert f"A: {toy_run.folder}" in done.out.replace("\n", "")
    assert "95 % interval" in done.out
    assert "capital_of" in done.out


@pytest.mark.parametrize("split", ["test", "valid"])
def test_compare_json_has_its_documented_fields(
    allneg: Command, toy_run: Run, other_run: Run, split: str
) -> None:
    shown = allneg("compare", toy_run.folder, other_run.folder, "--split", split, "--json").json
    mrrs = [evaluate(run.model, run.tables(), run.graph, split).mrr for run in (toy_run, other_run)]
    assert shown["mrr"] == pytest.approx(mrrs)
    assert shown["schema_version"] == 1
    assert shown["runs"] == [str(toy_run.folder), str(other_run.folder)]
    assert shown["split"] == split
    assert shown["difference"].keys() == {"mean", "low", "high", "p", "triples"}
    assert shown["difference"]["mean"] == pytest.approx(mrrs[0] - mrrs[1])
    for difference in shown["by_relation"].values():
        assert difference.keys() == {"mean", "low", "high", "p", "triples", "adjusted_p"}


def test_runs_on_different_data_are_refused(
    allneg: Command, toy_run: Run, tiny_graph: Graph, quick: Callable[..., Recipe], tmp_path: Path
) -> None:
    fewer = replace(tiny_graph, train=tiny_graph.train[1:])
    run = Run.create(tmp_path / "fewer", quick(), fewer)
    done = allneg("compare", toy_run.folder, run.folder)
    assert done.code == 3
    assert "not the same data" in done.err
    assert "SHA-256 of train" in done.err


def test_compare_with_one_run_prints_the_usage(allneg: Command, toy_run: Run) -> None:
    done = allneg("compare", toy_run.folder)
    assert done.code == 2
    assert "Usage: allneg compare [OPTIONS] RUN RUN" in done.err
