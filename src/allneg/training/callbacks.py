"""Functions that the training loop calls to report progress."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allneg.evaluation import Report
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.terminal import note

_LINE_SECONDS = 10.0  # between two lines about steps


class Callbacks:
    """The training loop calls these methods. They do nothing; override those you need."""

    def on_run(self, run: Run) -> None:
        """This run will be trained, from its start or its last checkpoint."""

    def on_start(self, epochs: int) -> None:
        """Training starts; `epochs` is the maximum number of epochs."""

    def on_message(self, line: str) -> None:
        """A message about the run."""

    def on_step(self, state: State, n_steps: int) -> None:
        """A step is done: `state.step` of `n_steps` in this epoch."""

    def on_evaluation(self, state: State, report: Report) -> None:
        """Valid was ranked after `state.epoch`."""

    def on_epoch(self, metrics: Mapping[str, Any]) -> None:
        """An epoch is done; `metrics` is its entry in metrics.jsonl."""

    def on_save(self, state: State) -> None:
        """A checkpoint with this state was written."""

    def on_end(self, report: Report | None) -> None:
        """Training is over; None if it was stopped, or if there is nothing to rank."""


class AllCallbacks(Callbacks):
    """Calls several callbacks in their order."""

    def __init__(self, members: Sequence[Callbacks]) -> None:
        for name in (name for name in vars(Callbacks) if name.startswith("on_")):
            setattr(self, name, _in_order([getattr(member, name) for member in members]))


def _in_order(methods: Sequence[Callable[..., None]]) -> Callable[..., None]:
    def call(*arguments: Any) -> None:
        for method in methods:
            method(*arguments)

    return call


class ProgressLines(Callbacks):
    """Plain lines on stderr: messages, rankings of valid and, every ten seconds, the step."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def on_message(self, line: str) -> None:
        note(line)

    def on_step(self, state: State, n_steps: int) -> None:
        if time.monotonic() - self._last >= _LINE_SECONDS:
            self._last = time.monotonic()
            note(f"epoch {state.epoch + 1}, step {state.step} of {n_steps}")

    def on_evaluation(self, state: State, report: Report) -> None:
        best = " (best)" if state.stale == 0 else ""
        note(f"epoch {state.epoch}: valid MRR {report.mrr:.4f}{best}")


class Watch(Callbacks):
    """Callbacks with the earlier method names: began, said, stepped, ranked."""

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
