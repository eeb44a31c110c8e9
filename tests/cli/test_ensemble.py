from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.runs import Run

Command = Callable[..., Any]  # runs `allneg` with these arguments


@pytest.fixture
def other(trained: Callable[..., Run]) -> Run:
    return trained("model.name=rotate")


def test_all_commands_use_an_ensemble(
    allneg: Command, toy_run: Run, other: Run, tmp_path: Path
) -> None:
    out = tmp_path / "both"
    done = allneg("ensemble", toy_run.folder, other.folder, "--out", out, "--device", "cpu")
    assert done.code == 0
    assert "tiny, test: ensemble: complex, rotate" in done.out
    assert "weights of the members selected by MRR on valid, filtered by train" in done.out
    made = Run.open(out).report
    shown = allneg("evaluate", out, "--json").json
    assert shown["mrr"] == pytest.approx(made.mrr)
    assert shown["ensemble"] == made.ensemble
    mrr = made.ensemble["valid_mrr_cross_fitted"]
    assert f"cross-fitted valid MRR of the ensemble {mrr:.4f}" in done.out
    assert "rotate" in allneg("evaluate", out, "--split", "valid").out
    query = ("predict", out, "--head", "France", "--relation", "borders", "--json")
    assert len(allneg(*query).json["answers"]) == 10
    assert allneg("compare", out, toy_run.folder).code == 0
    assert allneg("verify", out, "--rank").code == 0
    members = allneg("info", out, "--json").json["members"]
    assert [member["name"] for member in members] == ["run", "run-1"]
    shown = allneg("info", out).out
    assert "# member run-1" in shown
    assert "ensemble: " in shown
    assert "│ seconds" not in shown  # an ensemble is not trained itself
    assert "is an ensemble" in allneg("ensemble", out, "--counts", "--out", tmp_path / "x").err


def test_a_run_gets_counts(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    done = allneg("ensemble", toy_run.folder, "--counts", "--out", out, "--device", "cpu")
    assert done.code == 0, done.err
    assert "tiny, test: ensemble: complex, counts" in done.out
    assert "# member counts" in allneg("info", out).out
    query = ("predict", out, "--head", "France", "--relation", "in", "--json")
    assert len(allneg(*query).json["answers"]) == 10
    assert allneg("verify", out, "--rank").code == 0
    again = allneg("ensemble", toy_run.folder, "--counts", "--out", out)
    assert (again.code, again.err) == (2, f"allneg: {out}: already exists; choose another --out\n")
    over = allneg("ensemble", toy_run.folder, "--counts", "--out", toy_run.folder)
    assert "choose another --out, or train it further with `allneg resume`" in over.err


def test_wrong_input_is_explained(allneg: Command, toy_run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    one = allneg("ensemble", toy_run.folder, "--out", out)
    assert (one.code, "at least two runs" in one.err) == (2, True)
    none = allneg("ensemble", toy_run.folder, tmp_path / "none", "--out", out)
    assert (none.code, "there is no such folder" in none.err) == (4, True)
    twice = allneg("ensemble", toy_run.folder, toy_run.folder, "--out", out)
    assert (twice.code, "a run is given twice" in twice.err) == (2, True)
    taken = allneg("ensemble", toy_run.folder, "--counts", "--out", toy_run.folder)
    assert (taken.code, "already exists" in taken.err) == (2, True)
    assert allneg("ensemble", toy_run.folder, toy_run.folder).code == 2
    assert not out.exists()
