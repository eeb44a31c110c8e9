"""`allneg tune`."""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.live import Live

from allneg.cli import options
from allneg.cli.output import echo, json_document, make_table, table
from allneg.cli.workers import Worker, environments, wait_for_trials
from allneg.errors import UsageError, counted
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.runs import Run
    from allneg.tuning import TrialStatus, Tuning

_SHOWN = 10  # trials in the table
_FULL = 1 / 3  # of the time, at most, for a full training
_MOST_WORKERS = 8  # unless --workers says otherwise
_COLUMNS = ("model", "differs from the defaults in", "valid MRR#", "epochs#", "seconds#", "state")


@click.command()
@click.argument("data")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    required=True,
    help="Time budget in minutes.",
)
@click.option("--out", type=options.PATH, help="The folder of the tuning.")
@click.option("--models", metavar="NAMES", help="Models to try. Default: complex,rotate,transe")
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    help="Number of processes. Default: 1; for small graphs on a CPU, one per core.",
)
@click.option(
    "--no-counts",
    is_flag=True,
    help="OUT/best is the best trial alone, without counts of facts.",
)
@options.keep
@options.weight
@options.settings
@options.seed
@options.device_setting
@options.as_json
@options.quiet
@options.parent
def tune_command(
    data: str,
    minutes: float,
    out: Path | None,
    models: str | None,
    workers: int | None,
    no_counts: bool,
    keep: str | None,
    weight: str | None,
    settings: tuple[str, ...],
    seed: int | None,
    device: str | None,
    as_json: bool,
    quiet: bool,
    parent: int | None,
) -> None:
    """Find the model and the recipe for DATA within a time budget.

    Trials start from the defaults of each model and are compared by valid MRR, first after few
    epochs. The best ones are trained to their end. OUT/best is the best trial, with counts of facts
    if they raise its valid MRR; only this run is ranked on test, at the end. Run the same command
    again to continue an interrupted tuning, or with more --minutes to continue a finished one.
    """
    from allneg.cli.reports import stop_signal
    from allneg.runs import free_folder
    from allneg.tuning import DEFAULT_MODELS, Tuning

    flags = {"hardware.device": device, "training.seed": seed}
    flags |= {"data.keep_relations": keep, "data.weight": weight}
    names = DEFAULT_MODELS if models is None else [name.strip() for name in models.split(",")]
    folder = free_folder(data, "tune") if out is None else out
    shared = options.with_flags(settings, flags)
    tuning = Tuning(data, folder, minutes, names, shared, not no_counts)
    with stop_signal(parent) as stopped_by:
        if parent is not None:
            tuning.run(stopped_by)
            return
        with contextlib.ExitStack() as stack:
            on_poll = _progress(tuning, stack) if not quiet else (lambda: None)
            if (workers := workers or n_workers(tuning)) == 1:
                tuning.run(stopped_by, on_poll)
            else:
                defaults = tuning.neighbours.defaults.values()
                devices = {recipe.hardware.device for recipe in defaults}
                started = [
                    Worker.start([*sys.argv[1:], "--out", str(folder)], environment)
                    for environment in environments(workers, devices)
                ]
                to_continue = f"the same command with --out {folder} continues"
                wait_for_trials(started, stopped_by, tuning.n_left, on_poll, to_continue)
        run = tuning.finish()
    try:
        tuning.plot()
    except UsageError as missing:
        note(str(missing))
    _print(tuning, run, as_json)


def n_workers(tuning: Tuning) -> int:
    """How many processes to start by default.

    Several processes with few threads train more trials than one with many: small matrices use
    threads badly. There are at most as many as complete a full training in time.
    """
    import torch

    from allneg.training.defaults import cpu_seconds

    is_chosen = "hardware.threads" in tuning.neighbours.fixed or "OMP_NUM_THREADS" in os.environ
    if tuning.device.type != "cpu" or is_chosen:
        return 1
    seconds = cpu_seconds(tuning.neighbours.defaults[tuning.models[0]], tuning.graph)
    count = int(60 * tuning.minutes * _FULL / seconds)
    return max(1, min(count, torch.get_num_threads(), _MOST_WORKERS))


def _print(tuning: Tuning, run: Run, as_json: bool) -> None:
    from allneg.tuning.progress import describe

    if as_json:
        json_document({**tuning.results(), "tuning": str(tuning.out)})
        return
    statuses, report, folder = tuning.statuses(), run.report, shlex.quote(str(run.folder))
    trials, minutes = counted(len(statuses), "trial"), tuning.clock.seconds / 60
    title = f"{tuning.graph.name}: {trials} in {minutes:.1f} min"
    table(title, _COLUMNS, map(_cells, statuses), most=_SHOWN)
    trial = f"{describe(statuses[0])}: valid MRR {statuses[0].valid_mrr:.4f}"
    tested = f", test MRR {report.mrr:.4f}" if report.protocol["split"] == "test" else ""
    if run.members:
        echo(f"best trial: {trial}")
        mrr = report.ensemble["valid_mrr_cross_fitted"]
        echo(f"best: this trial with counts of facts: cross-fitted valid MRR {mrr:.4f}{tested}")
    else:
        echo(f"best: {trial}{tested}")
    if tuning.results()["best"].get("counts") == "no time":
        how = f"`allneg ensemble {folder} --counts --out NEW` adds them"
        echo(f"no time was left for counts of facts: {how}")
    echo(f"run: {folder}; recipe: {shlex.quote(f'{run.folder}.toml')}")


def _cells(status: TrialStatus) -> tuple[object, ...]:
    from allneg.tuning.progress import describe

    model, _, changes = describe(status).partition(", ")
    seconds = f"{status.seconds:,.1f}"
    return model, changes or "nothing", status.valid_mrr, status.epochs, seconds, status.state


def _progress(tuning: Tuning, stack: contextlib.ExitStack) -> Callable[[], None]:
    """A function that shows the trials on stderr: a live table, or lines without a terminal."""
    from allneg.tuning.progress import TuningLines, tuning_progress

    show = _Table(tuning, stack) if sys.stderr.isatty() else TuningLines(tuning)
    return stack.enter_context(tuning_progress(tuning, show))


class _Table:
    """A table of the best trials, until `stack` closes."""

    def __init__(self, tuning: Tuning, stack: contextlib.ExitStack) -> None:
        self._tuning = tuning
        self._live = stack.enter_context(Live(console=Console(stderr=True), transient=True))

    def __call__(self, statuses: list[TrialStatus]) -> None:
        trials, minutes = counted(len(statuses), "trial"), self._tuning.minutes_left
        title = f"{self._tuning.graph.name}: {trials}, {minutes:.1f} min left"
        rows = map(_cells, statuses[:_SHOWN])
        self._live.update(make_table(title, _COLUMNS, rows), refresh=True)
