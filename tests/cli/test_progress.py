from __future__ import annotations

import io
import os
import signal
import sys

import pytest

from allneg.cli.reports import stop_signal, training_progress
from allneg.runs.checkpoint import State
from allneg.training import callbacks as callbacks_module


@pytest.mark.battery(24)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_recorded_and_the_second_ends_the_process(
    number: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    before = signal.getsignal(number)
    with stop_signal() as stopped_by:
        assert stopped_by() == 0
        os.kill(os.getpid(), number)
        assert stopped_by() == number
        assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
        assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert signal.getsignal(number) == before
    assert "repeat the signal to end at once" in capfd.readouterr().err


def test_a_signal_during_a_print_is_recorded(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A stream that is being written to refuses a second writer."""

    class Busy(io.TextIOBase):
        def write(self, text: str) -> int:
            raise RuntimeError("reentrant call")

    monkeypatch.setattr(sys, "stderr", Busy())
    with stop_signal() as stopped_by:
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped_by() == signal.SIGINT
    assert "repeat the signal to end at once" in capfd.readouterr().err


def test_without_a_terminal_progress_is_plain_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callbacks_module, "_LINE_SECONDS", 0.0)
    with training_progress(quiet=False) as (callbacks, _):
        callbacks.on_message("a note \x1b[2J")
        callbacks.on_step(State(epoch=2, step=5), 9)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == "a note \\x1b[2J\nepoch 3, step 5 of 9\n"


def test_quiet_progress_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with training_progress(quiet=True) as (callbacks, _):
        callbacks.on_message("a note")
        callbacks.on_step(State(), 1)
    assert capsys.readouterr().err == ""
