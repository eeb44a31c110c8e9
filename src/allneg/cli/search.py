"""`allneg search`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import json_option, quiet_option, set_option
from allneg.cli.say import clean, json_document, note, table
from allneg.cli.workers import Worker, oversee, start, with_parent
from allneg.errors import Diverged, OutOfMemoryError, RecipeError, counted

if TYPE_CHECKING:
    from rich.table import Table

    from allneg.training.search import Ranged, Space, Standing

_MOST_ROWS = 10
_SECONDS_A_LOOK = 1.0
_FAILED = ("diverged", "too large")
_ENDED = ("finished", "dropped", *_FAILED)


@click.command()
@click.argument("space", type=click.Path(path_type=Path), metavar="SPACE.toml")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The search's folder.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, help="Processes at once.")
@click.option("--trials", type=click.IntRange(1), help="How many to try, where there are ranges.")
@click.option("--halving", is_flag=True, help="Train all a little, and only the best to the end.")
@click.option("--status", "only_status", is_flag=True, help="Say how it stands, and stop.")
@set_option
@json_option
@quiet_option
@click.option("--worker-of", "parent", type=int, hidden=True, help="What --workers starts.")
def command(
    space: Path,
    out: Path,
    workers: int,
    trials: int | None,
    halving: bool,
    only_status: bool,
    settings: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Try every combination of the settings in SPACE.toml's [search], each once.

    Where a setting has a range, --trials of them are tried, each where Optuna's TPE expects most.
    The same command goes on with a search that was cut off; started again beside itself, here or
    on another machine that sees the folder, it helps. Trials are chosen by valid MRR alone.
    """
    from allneg.cli.progress import watched
    from allneg.training.search import read_ranged, read_space

    if trials and halving:
        raise RecipeError("--halving is for lists of values; leave out --halving, or the ranges")
    if (out / "run.json").exists():
        raise RecipeError(f"{out}: is a run, and no search; choose another --out")
    if trials or (only_status and (out / "asked.json").exists()):
        read: Space | Ranged = read_ranged(space, trials or 0, settings)
    else:
        read = read_space(space, settings)
    asked = _Asked(read, out, halving)
    if only_status:
        _print(asked, as_json)
        return
    with watched(quiet=True) as (_, stopped_by):
        if parent is not None:
            asked.search(with_parent(stopped_by, parent))
            return
        with contextlib.nullcontext() if quiet else _shown(asked):
            if workers == 1:
                asked.search(stopped_by)
            else:
                asked.check()  # what is wrong is said once, not by every worker
                oversee(asked.started(workers), stopped_by, asked.n_left)
    _draw(asked)
    _print(asked, as_json)
    ends = {each.state for each in asked.standings()}
    if ends == {"diverged"}:
        raise Diverged(f"{out}: every trial has diverged; search lower optimizer.learning_rate")
    if ends <= {*_FAILED}:
        raise OutOfMemoryError(f"{out}: no trial has ended well; search lower model.dim")


@dataclass(frozen=True)
class _Asked:
    """A search as it was asked for."""

    read: Space | Ranged
    out: Path
    halving: bool

    @property
    def space(self) -> Space:
        """The trials; those asked for so far, where there are ranges."""
        from allneg.training.search import Space

        return self.read if isinstance(self.read, Space) else self.read.space(self.out)

    @property
    def total(self) -> int:
        """How many trials there are going to be."""
        from allneg.training.search import Space

        if isinstance(self.read, Space):
            return len(self.read.trials)
        return max(self.read.count, len(self.read.asked(self.out)))

    def search(self, stopped_by: Callable[[], int]) -> None:
        from allneg.training.search import Space, search, search_ranges

        if isinstance(self.read, Space):
            search(self.read, self.out, halving=self.halving, stopped_by=stopped_by)
        else:
            search_ranges(self.read, self.out, stopped_by=stopped_by)

    def check(self) -> None:
        """Find what is wrong with data, devices and folder."""
        from allneg.training.search import checked

        checked(self.some, self.out)

    @property
    def some(self) -> Space:
        """Trials for what all have in common."""
        from allneg.training.search import Space

        return self.read if isinstance(self.read, Space) else self.read.corners

    def standings(self) -> list[Standing]:
        from allneg.training.search import standings

        return standings(self.space, self.out, self.halving)

    def n_twice(self) -> int:
        """How many suggestions had been made before, as where a range has few values."""
        from allneg.training.search import Space

        if isinstance(self.read, Space):
            return 0
        return len(self.read.asked(self.out)) - len(self.space.trials)

    def n_left(self) -> int:
        """How many trials have not ended."""
        from allneg.training.search import Space

        left = sum(each.state not in _ENDED for each in self.standings())
        if not isinstance(self.read, Space):
            # What is suggested twice is asked twice, and tried once.
            left += max(0, self.read.count - len(self.read.asked(self.out)))
        return left

    def started(self, workers: int) -> list[Worker]:
        """This very command, so many times, as workers."""
        devices = {trial.recipe.hardware.device for trial in self.some.trials}
        arguments = [*sys.argv[1:], "--worker-of", str(os.getpid())]
        return start(workers, arguments, share_gpus=devices <= {"auto", "cuda"})


def _draw(asked: _Asked) -> None:
    from allneg.training.search.plot import draw

    try:
        draw(asked.space, asked.standings(), asked.out / "search.svg")
    except RecipeError as missing:
        note(str(missing))


def _print(asked: _Asked, as_json: bool) -> None:
    from allneg.training.search import results
    from allneg.training.search.space import shown

    found = asked.standings()
    if as_json:
        json_document({**results(asked.space, found, asked.halving), "search": str(asked.out)})
        return
    names = asked.space.names
    table(
        _summary(found),
        (*(f"{name}#" for name in names), "valid MRR#", "best epoch#", "state", "trial"),
        [
            (
                *(shown(each.trial.settings[name]) for name in names),
                each.valid_mrr,
                each.best_epoch,
                each.state,
                each.trial.id,
            )
            for each in found[:_MOST_ROWS]
        ],
    )
    if twice := asked.n_twice():
        print(f"{counted(twice, 'suggestion')} had been tried before: there is little left to try")
    if len(found) > _MOST_ROWS:
        print(f"and {len(found) - _MOST_ROWS:,} trials more (--json has all)")
    if large := [each for each in found if each.state == "too large"]:
        folder = shlex.quote(str(asked.out / "trials" / large[0].trial.id))
        print(f"{large[0].reason}\nTo try that one again, remove {folder} first.")
    if found and found[0].state == "finished":
        best = shlex.quote(str(asked.out / "trials" / found[0].trial.id))
        print(f"best: {best}; `allneg evaluate {best}` ranks test, which no trial has seen")


def _summary(found: list[Standing]) -> str:
    from allneg.training.search import STATES

    counts = {state: sum(each.state == state for each in found) for state in STATES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(found)} trials: {said}"


@contextlib.contextmanager
def _shown(asked: _Asked) -> Iterator[None]:
    """Progress on stderr: a table that lives, or a line a trial where there is no terminal."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.live import Live

        with Live(
            get_renderable=lambda: _live(asked.standings()),
            console=Console(stderr=True),
            refresh_per_second=1 / _SECONDS_A_LOOK,
            transient=True,
        ):
            yield
        return
    ended, lines = threading.Event(), _Lines(asked)
    thread = threading.Thread(target=lines.go_on_until, args=(ended,))
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _live(found: list[Standing]) -> Table:
    """The trials at work, then the best ones."""
    from rich.table import Table
    from rich.text import Text

    out = Table(title=_summary(found), title_justify="left")
    for column in ("settings", "valid MRR", "epochs", "state"):
        out.add_column(column, justify="left" if column in ("settings", "state") else "right")
    at_work = [each for each in found if each.state == "running"]
    others = [each for each in found if each.state not in ("running", "waiting")]
    for each in (at_work + others)[:_MOST_ROWS]:
        mrr = "-" if each.valid_mrr is None else f"{each.valid_mrr:.4f}"
        epochs = f"{each.epochs} of {each.trial.recipe.training.epochs}"
        out.add_row(Text(clean(each.trial.in_words())), mrr, epochs, each.state)
    return out


class _Lines:
    """Says once of each trial how it ended."""

    def __init__(self, asked: _Asked) -> None:
        self._asked = asked
        self._told = {each.trial.id for each in asked.standings() if each.state in _ENDED}
        data = asked.some.recipe.data.name
        note(f"{asked.out}: {asked.total} trials on {data}, {len(self._told)} of them done")

    def go_on_until(self, ended: threading.Event) -> None:
        while not ended.wait(_SECONDS_A_LOOK):
            self._tell()
        self._tell()

    def _tell(self) -> None:
        found = self._asked.standings()
        for each in found:
            if each.state in _ENDED and each.trial.id not in self._told:
                self._told.add(each.trial.id)
                mrr = "" if each.valid_mrr is None else f", valid MRR {each.valid_mrr:.4f}"
                share = f"{len(self._told)} of {self._asked.total}"
                note(f"{share}: {each.trial.in_words()}: {each.state}{mrr}")
