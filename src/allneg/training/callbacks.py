"""What someone who watches a training is told."""

from __future__ import annotations

from allneg.evaluation import Report
from allneg.runs.checkpoint import State


class Callbacks:
    """Told of each step and ranking; this one keeps silent."""

    def began(self, epochs: int) -> None:
        """Training begins, for at most so many epochs."""

    def said(self, line: str) -> None:
        """A line about the run as a whole."""

    def stepped(self, state: State, n_steps: int) -> None:
        """A step was done: `state.step` of `n_steps` in this epoch."""

    def ranked(self, state: State, report: Report) -> None:
        """Valid was ranked after `state.epoch`."""
