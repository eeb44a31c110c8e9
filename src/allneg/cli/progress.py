"""Progress of a training on stderr, and the signals that end it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from allneg.cli.say import clean, note, speaks
from allneg.evaluation import Report
from allneg.runs.checkpoint import State
from allneg.training import Callbacks

_SECONDS_A_LINE = 10.0  # between two lines where there is no terminal


@contextlib.contextmanager
def watched(quiet: bool) -> Iterator[tuple[Callbacks, Callable[[], int]]]:
    """A callbacks for this terminal, and a function that says which signal came in, or 0."""
    with contextlib.ExitStack() as stack:
        callbacks = Callbacks()
        if not quiet and speaks():
            callbacks = stack.enter_context(_Bar()) if sys.stderr.isatty() else _Lines()
        yield callbacks, stack.enter_context(_signals())


@contextlib.contextmanager
def _signals() -> Iterator[Callable[[], int]]:
    """Note the first SIGINT or SIGTERM; a second one has its usual effect, at once.

    Not under torchrun, which may pass one signal on twice, and ends who takes too long.
    """
    came: list[int] = []
    once_more = "TORCHELASTIC_RUN_ID" not in os.environ
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def take(number: int, frame: FrameType | None) -> None:
        came.append(number)
        if once_more:
            for each in before:
                signal.signal(each, signal.SIG_DFL)
            # Not by `print`: the signal may have come in the middle of one.
            with contextlib.suppress(OSError):
                os.write(2, b"\nsaving; once more ends at once, unsaved\n")

    for each in before:
        signal.signal(each, take)
    try:
        yield lambda: came[0] if came else 0
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


class _Lines(Callbacks):
    """A plain line now and then."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def said(self, line: str) -> None:
        for each in line.splitlines():
            note(each)

    def stepped(self, state: State, n_steps: int) -> None:
        if time.monotonic() - self._last >= _SECONDS_A_LINE:
            self._last = time.monotonic()
            note(f"epoch {state.epoch + 1}, step {state.step} of {n_steps}")

    def ranked(self, state: State, report: Report) -> None:
        best = " (best)" if state.stale == 0 else ""
        note(f"epoch {state.epoch}: valid MRR {report.mrr:.4f}{best}")


class _Bar(Callbacks):
    """A progress bar over all epochs; early stopping may end it sooner."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("at most"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[mrr]}"),
            console=self._console,
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=None, mrr="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def began(self, epochs: int) -> None:
        self._epochs = epochs

    def said(self, line: str) -> None:
        for each in line.splitlines():
            self._console.print(clean(each), markup=False, highlight=False)

    def stepped(self, state: State, n_steps: int) -> None:
        self._progress.update(
            self._task,
            description=f"epoch {state.epoch + 1} of {self._epochs}",
            completed=state.epoch * n_steps + state.step,
            total=self._epochs * n_steps,
        )

    def ranked(self, state: State, report: Report) -> None:
        self._progress.update(
            self._task, mrr=f"valid MRR {report.mrr:.4f}, best {state.best_mrr:.4f}"
        )
