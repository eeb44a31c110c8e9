"""Lines on stderr about the trials of a search or a tuning, also about those of other processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from allneg.errors import counted
from allneg.terminal import note
from allneg.training.train import notes
from allneg.tuning.space import TrialStatus

if TYPE_CHECKING:
    from allneg.tuning.search import Search
    from allneg.tuning.tune import Tuning

_SHOW_SECONDS = 2.0  # between two updates about the trials of a tuning


def search_lines(search: Search) -> Callable[[], None]:
    """A function that prints a line for every trial that ended since its last call."""
    seen = {status.trial.id for status in search.ended()}

    def print_new() -> None:
        for status in search.ended():
            if status.trial.id not in seen:
                seen.add(status.trial.id)
                mrr = "" if status.valid_mrr is None else f", valid MRR {status.valid_mrr:.4f}"
                done = f"{len(seen)} of {search.n_total()}"
                note(f"{done}: {status.trial}: {status.state}{mrr}")

    data = search.space.recipe.data.name
    note(f"{search.out}: {search.n_total()} trials on {data}, {len(seen)} of them done")
    return print_new


@contextmanager
def tuning_progress(
    tuning: Tuning, show: Callable[[list[TrialStatus]], None]
) -> Iterator[Callable[[], None]]:
    """A function that calls `show` with the status of every trial, if the last call is old."""
    for line in notes(tuning.graph):
        note(line)
    note(f"{tuning.out}: tuning on {tuning.graph.name}, {tuning.minutes_left:.1f} min left")
    shown = time.monotonic()

    def on_poll() -> None:
        nonlocal shown
        if time.monotonic() - shown >= _SHOW_SECONDS:
            show(tuning.statuses())
            shown = time.monotonic()

    yield on_poll
    show(tuning.statuses())


class TuningLines:
    """Prints a line for every trial that has reached a rung or ended."""

    def __init__(self, tuning: Tuning) -> None:
        self._tuning = tuning
        self._seen = {(at.trial.id, at.epochs) for at in tuning.statuses()}

    def __call__(self, statuses: list[TrialStatus]) -> None:
        for at in statuses:
            if at.state != "running" and (at.trial.id, at.epochs) not in self._seen:
                self._seen.add((at.trial.id, at.epochs))
                mrr = "" if at.valid_mrr is None else f", valid MRR {at.valid_mrr:.4f}"
                best = (
                    "" if statuses[0].valid_mrr is None else f"; best {statuses[0].valid_mrr:.4f}"
                )
                what = f"{describe(at)}: {at.state} after {counted(at.epochs, 'epoch')}{mrr}"
                why = "" if at.reason is None else f" ({at.reason})"
                note(f"{self._tuning.minutes_left:.1f} min left: {what}{why}{best}")


def describe(status: TrialStatus) -> str:
    """The model of a trial, and what differs from its defaults."""
    return str(status.trial).removeprefix("model.name ")
