"""Functions that the training loop calls to report progress."""

from allneg.evaluation import Report
from allneg.runs.checkpoint import State


class Callbacks:
    """The training loop calls these methods. They do nothing; override those you need."""

    def on_start(self, epochs: int) -> None:
        """Training starts; `epochs` is the maximum number of epochs."""

    def on_message(self, line: str) -> None:
        """A message about the run."""

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
