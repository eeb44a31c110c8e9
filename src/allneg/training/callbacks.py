"""What a training reports while it runs."""

from allneg.evaluation import Report
from allneg.runs.checkpoint import State


class Callbacks:
    """Called by the training loop. These do nothing; override what you need."""

    def on_start(self, epochs: int) -> None:
        """Training starts, for at most so many epochs."""

    def on_message(self, line: str) -> None:
        """A line about the run as a whole."""

    def on_step(self, state: State, n_steps: int) -> None:
        """A step is done: `state.step` of `n_steps` in this epoch."""

    def on_evaluation(self, state: State, report: Report) -> None:
        """Valid was ranked after `state.epoch`."""


class Watch(Callbacks):
    """Callbacks with the method names of version 0.1: began, said, stepped, ranked."""

    def began(self, *_: object) -> None: ...

    said = stepped = ranked = began

    def on_start(self, epochs: int) -> None:
        self.began(epochs)

    def on_message(self, line: str) -> None:
        self.said(line)

    def on_step(self, state: State, n_steps: int) -> None:
        self.stepped(state, n_steps)

    def on_evaluation(self, state: State, report: Report) -> None:
        self.ranked(state, report)
