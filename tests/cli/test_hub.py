from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from allneg import hub
from allneg.runs import Run


def test_push_prints_the_address(
    allneg: Callable[..., Any], toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(hub, "push", lambda *given: calls.append(given) or "https://x/me/toy")
    assert allneg("push", toy_run.folder, "me/toy", "--private").out == "https://x/me/toy\n"
    assert calls == [(toy_run.folder, "me/toy", True)]
    assert allneg("push", toy_run.folder, "me/toy", "--json").json["address"] == "https://x/me/toy"


def test_commands_that_read_take_runs_of_the_hub(
    allneg: Callable[..., Any], toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "download", lambda name: toy_run.folder)
    for command in (
        ["predict", "hf:me/toy", "--head", "France", "--relation", "in"],
        ["info", "hf:me/toy"],
    ):
        assert allneg(*command).code == 0
    assert allneg("resume", "hf:me/toy").code == 4  # a run of the cache is not trained
