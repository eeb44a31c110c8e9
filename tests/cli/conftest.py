"""The command `allneg`, run in the process of the test."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from allneg.cli import main, workers
from processes import ForkedPopen


@dataclass(frozen=True)
class Outcome:
    """The exit code and the output of a command."""

    code: int
    out: str  # on stdout
    err: str  # on stderr

    @property
    def json(self) -> Any:
        """The JSON document on stdout; NaN and Infinity are not JSON."""
        return json.loads(self.out, parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork workers, and ask often whether they have ended."""
    monkeypatch.setattr(workers, "subprocess", SimpleNamespace(Popen=ForkedPopen, DEVNULL=None))
    monkeypatch.setattr(workers, "TRIAL_POLL_SECONDS", 0.05)


@pytest.fixture
def allneg(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Outcome]:
    """`allneg("info", run, "--json")` in this process; an uncaught exception fails the test."""

    def command(*arguments: object) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["allneg", *map(str, arguments)])
        code: object = 0
        capsys.readouterr()
        try:
            main()
        except SystemExit as error:
            code = error.code
        printed = capsys.readouterr()
        assert isinstance(code, int)
        return Outcome(code, printed.out, printed.err)

    return command
