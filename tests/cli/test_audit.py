"""The command `audit`."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allneg.auditing import audit as module
from allneg.runs import Run
from allneg.training import Callbacks

Command = Callable[..., Any]  # runs `allneg` with these arguments
QUICK = ("--folds", "2", "--device", "cpu", "--set", "model.dim=4", "--set", "training.epochs=1")
COLUMNS = [
    "head",
    "relation",
    "tail",
    "probability",
    "head_rank",
    "tail_rank",
    "expected",
    "reason",
]


def test_suspicious_facts_are_written(allneg: Command, tiny_folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "wrong.jsonl"
    done = allneg("audit", tiny_folder, *QUICK, "--top", "3", "--out", out)
    assert done.code == 0
    assert "3 facts of 25, " in done.out
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [list(row) for row in rows] == [COLUMNS] * 3
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "tiny", "wrong-duplicates.jsonl", "wrong.jsonl"
    ]  # fmt: skip
    again = allneg("audit", tiny_folder, *QUICK, "--out", out)
    assert again.code == 2
    assert "already exists" in again.err


def test_an_interrupted_audit_is_continued(
    allneg: Command, tiny_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, fit = tmp_path / "wrong.tsv", module.fit

    def interrupted(run: Run, callbacks: Callbacks, _: object, again: str) -> None:
        fit(run, callbacks, lambda: signal.SIGTERM, again=again)

    monkeypatch.setattr(module, "fit", interrupted)
    done = allneg("audit", tiny_folder, *QUICK, "--out", out, "--json")
    assert done.code == 143
    assert "stopped and saved; the same command continues it" in done.err
    assert not out.exists()
    monkeypatch.setattr(module, "fit", fit)
    done = allneg("audit", tiny_folder, *QUICK, "--out", out, "--json")
    assert done.json["judged"] == 25
    assert done.json["facts"] == len(out.read_text().splitlines()) == 25
