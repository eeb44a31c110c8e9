"""The message about the time that a training takes."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from allneg.runs import Run
from allneg.training import Callbacks, fit
from allneg.training.forecast import duration


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0512, "0.051 s"), (9.9, "9.9 s"), (45.4, "45 s"), (600, "10 min"), (9000, "2.5 h")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Messages(Callbacks):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def on_message(self, line: str) -> None:
        self.lines.append(line)


def test_a_training_tells_once_how_long_it_takes(made: Callable[..., Run]) -> None:
    run = made("training.batch_size=1", "training.epochs=4")  # 40 steps per epoch
    seen = Messages()
    fit(run, seen)
    told = [line for line in seen.lines if "per epoch" in line]
    assert len(told) == 1
    assert re.fullmatch(r"about .* s per epoch; at most .* s for the 4 epochs left", told[0])
    fit(made("training.batch_size=1", "training.epochs=1"), seen)
    assert seen.lines[-1].endswith(" s for the 1 epoch left")
