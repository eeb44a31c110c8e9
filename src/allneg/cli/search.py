"""`allneg search`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli.options import json_option, quiet_option, set_option
from allneg.cli.say import clean, json_document, note, table
from allneg.errors import BadRecipe, Diverged, Interrupted, OutOfResources

if TYPE_CHECKING:
    from rich.table import Table

    from allneg.training.search import Space, Standing

_MOST_ROWS = 10
_SECONDS_A_LOOK = 1.0
_ENDED = ("finished", "diverged", "dropped")


@click.command()
@click.argument("space", type=click.Path(path_type=Path), metavar="SPACE.toml")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The search's folder.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, help="Processes at once.")
@click.option("--halving", is_flag=True, help="Train all a little, and only the best to the end.")
@click.option("--status", "only_status", is_flag=True, help="Say how it stands, and stop.")
@set_option
@json_option
@quiet_option
@click.option("--worker", "is_worker", is_flag=True, hidden=True, help="What --workers starts.")
def command(
    space: Path,
    out: Path,
    workers: int,
    halving: bool,
    only_status: bool,
    settings: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    is_worker: bool,
) -> None:
    """Try every combination of the settings in SPACE.toml's [search], each once.

    The same command goes on with a search that was cut off; started again beside itself, here or
    on another machine that sees the folder, it helps. Trials are chosen by valid MRR alone.
    """
    from allneg.cli.progress import watched
    from allneg.training.search import checked, read_space, search

    asked = _Asked(read_space(space, settings), out, halving)
    if only_status:
        _print(asked, as_json)
        return
    with watched(quiet=True) as (_, stopped_by):
        if is_worker:
            search(asked.space, out, halving=halving, stopped_by=stopped_by)
            return
        with contextlib.nullcontext() if quiet else _shown(asked):
            if workers == 1:
                search(asked.space, out, halving=halving, stopped_by=stopped_by)
            else:
                checked(asked.space, out)  # what is wrong is said once, not by every worker
                _oversee(asked, _started(asked, workers, sys.argv[1:]), stopped_by)
    _draw(asked)
    _print(asked, as_json)
    if all(each.state == "diverged" for each in asked.standings()):
        raise Diverged(f"{out}: every trial has diverged; search lower optimizer.learning_rate")


@dataclass(frozen=True)
class _Asked:
    """A search as it was asked for."""

    space: Space
    out: Path
    halving: bool

    def standings(self) -> list[Standing]:
        from allneg.training.search import standings

        return standings(self.space, self.out, self.halving)


def _started(asked: _Asked, workers: int, arguments: list[str]) -> list[subprocess.Popen[bytes]]:
    """This command again, so many times, as workers.

    They are in sessions of their own: a Ctrl-C comes to us alone, and we pass it on once.
    """
    import torch

    threads = max(1, torch.get_num_threads() // workers)
    devices = {trial.recipe.hardware.device for trial in asked.space.trials}
    gpus = _gpus() if devices <= {"auto", "cuda"} else []
    started = []
    for i in range(workers):
        environment = {"OMP_NUM_THREADS": str(threads), **os.environ}
        if gpus:
            environment["CUDA_VISIBLE_DEVICES"] = gpus[i % len(gpus)]
        command = [sys.executable, "-m", "allneg", *arguments, "--worker"]
        started.append(
            subprocess.Popen(
                command, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
            )
        )
    return started


def _gpus() -> list[str]:
    """The GPUs to share out among workers."""
    import torch

    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(torch.cuda.device_count())]


def _oversee(
    asked: _Asked, workers: list[subprocess.Popen[bytes]], stopped_by: Callable[[], int]
) -> None:
    """Wait for the workers; what one of them leaves behind the others take up."""
    told = 0
    while any(each.poll() is None for each in workers):
        if stopped_by() and not told:
            told = stopped_by()
            for each in workers:
                if each.poll() is None:
                    each.send_signal(told)
        time.sleep(0.1)
    if told:
        raise Interrupted("stopped and saved; the same command goes on", told)
    codes = [each.returncode for each in workers if each.returncode]
    left = sum(each.state not in _ENDED for each in asked.standings())
    killed = [signal.Signals(-code).name for code in codes if code < 0]
    if killed:
        note(f"{len(killed)} of {len(workers)} workers were killed ({', '.join(sorted(killed))})")
    if left and killed:
        raise OutOfResources(
            f"{asked.out}: {left} trials are left and no worker is; the same command goes on"
        )
    if left:
        # Each worker has said on stderr what went wrong.
        raise click.exceptions.Exit(max(codes, default=1))


def _draw(asked: _Asked) -> None:
    from allneg.training.search.plot import draw

    try:
        draw(asked.space, asked.standings(), asked.out / "search.svg")
    except BadRecipe as missing:
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
    if len(found) > _MOST_ROWS:
        print(f"and {len(found) - _MOST_ROWS:,} trials more (--json has all)")
    if found[0].state == "finished":
        best = asked.out / "trials" / found[0].trial.id
        print(f"best: {best}; `allneg evaluate {best}` ranks test, which no trial has seen")


def _summary(found: list[Standing]) -> str:
    counts = {state: sum(each.state == state for each in found) for state in _STATES}
    said = ", ".join(f"{count} {state}" for state, count in counts.items() if count)
    return f"{len(found)} trials: {said}"


_STATES = ("finished", "running", "paused", "dropped", "diverged", "waiting")


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
        total = len(asked.space.trials)
        note(f"{asked.out}: {total} trials, {len(self._told)} of them done")

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
                share = f"{len(self._told)} of {len(found)}"
                note(f"{share}: {each.trial.in_words()}: {each.state}{mrr}")
