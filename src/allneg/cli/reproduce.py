"""`allneg reproduce`."""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from allneg.cli import options
from allneg.cli.output import json_document, table
from allneg.errors import AllnegError, Interrupted, RecipeError, RunError, error_for_exit_code
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.reproduce import Cell, Results, Task

_PARTS = ("table1", "table2", "figure1", "norms", "beyond", "ablation", "ensemble")
_LINE_SECONDS = 30.0  # between two lines of progress
_SECONDS = click.FloatRange(0, max=1e9)
_SEED = click.IntRange(0, (1 << 63) - 1)
_COLUMNS = ("", "paper#", "ours#", "±#", "difference#", "Hits@1#", "Hits@10#", "seeds", "missing")


def _not_nan(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """Refuse nan, which a `FloatRange` accepts."""
    if value is not None and math.isnan(value):
        raise click.BadParameter("nan is not a number; write one, such as 1500")
    return value


def _words(_: click.Context, __: click.Parameter, text: str | None) -> list[str]:
    return [word.strip() for word in text.split(",")] if text else []


def _seeds(ctx: click.Context, option: click.Parameter, text: str | None) -> list[int]:
    return list(dict.fromkeys(_SEED(word, option, ctx) for word in _words(ctx, option, text)))


@click.command()
@click.argument("parts", nargs=-1, type=click.Choice(_PARTS), metavar="[PART]...")
@click.option("--datasets", callback=_words, metavar="A,B", help="Only these datasets.")
@click.option("--rows", callback=_words, metavar="A,B", help="Only these rows.")
@click.option("--seeds", callback=_seeds, metavar="0,1,2", help="Seeds to train. Default: 0,1,2")
@click.option("--quick", is_flag=True, help="Small models of the packaged graph.")
@click.option(
    "--parallel", type=click.IntRange(1, 64), default=1, help="Number of runs in parallel."
)
@click.option(
    "--limit-seconds", type=_SECONDS, callback=_not_nan, help="Save and stop after this time."
)
@click.option("--status", "status_only", is_flag=True, help="Print the results so far and exit.")
@click.option("--results", type=Path, help="Folder of result files. Default: results")
@click.option("--runs", type=Path, default="runs/reproduce", help="Folder of runs.")
@options.as_json
@options.quiet
def reproduce_command(
    parts: tuple[str, ...],
    datasets: list[str],
    rows: list[str],
    seeds: list[int],
    quick: bool,
    parallel: int,
    limit_seconds: float | None,
    status_only: bool,
    results: Path | None,
    runs: Path,
    as_json: bool,
    quiet: bool,
) -> None:
    """Train cells of the paper's tables and compare our numbers with the paper's.

    PART is table1, table2, figure1, norms, beyond, ablation or ensemble. Finished cells are
    skipped and interrupted runs are resumed. An ensemble combines runs of beyond and table1 that
    are already trained. Without PART, only the results so far are printed.
    """
    from allneg.reproduce import Results, make_tasks, select

    runs = runs.with_name(f"{runs.name}-quick") if quick else runs
    folder = results or (runs / "results" if quick else Path("results"))
    cells, failed = select(parts or _PARTS, datasets, rows), dict[str, AllnegError]()
    tasks, found = make_tasks(cells, seeds, runs, quick), Results(folder, quick)
    if parts and not status_only:
        failed = _train(tasks, found, parallel, limit_seconds, quiet)
    elif parallel > 1 or limit_seconds is not None:
        raise RecipeError(f"nothing to train: name one of {', '.join(_PARTS)}, without --status")
    _print(found, cells, tasks, as_json)
    for name, error in failed.items():
        note(f"{name}: {error}")
    if failed:
        codes = {error.exit_code for error in failed.values()}
        code = codes.pop() if len(codes) == 1 else AllnegError.exit_code
        raise error_for_exit_code(code, f"{len(failed)} of {len(tasks)} runs failed")


def _train(
    tasks: Sequence[Task], results: Results, parallel: int, limit: float | None, quiet: bool
) -> dict[str, AllnegError]:
    """Train the tasks without a result and write result files; what failed, by task."""
    from allneg.cli.reports import stop_signal
    from allneg.cli.workers import TO_CONTINUE, ParallelTraining
    from allneg.reproduce import entry
    from allneg.runs import Run
    from allneg.runs.files import need_writable, write_errors
    from allneg.runs.folder import locked

    left = [task for task in tasks if not results.has(task)]
    if not quiet:
        note(f"{len(tasks) - len(left)} of {len(tasks)} runs are finished")
    if not left:
        return {}
    for folder in (results.folder, left[0].runs):  # fail before the training, not after it
        with write_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            need_writable(folder)

    def add_result(task: Task) -> None:
        seed = entry(Run.open(task.folder))
        results.add(task.cell, task.recipe, seed)
        paper = f" (paper {task.cell.paper.mrr:.2f})" if task.cell.paper else ""
        if not quiet:
            reached = f"test MRR {seed['mrr']:.4f}{paper}, {seed['seconds']:.0f} s"
            note(f"{training.progress()}: {task.name}: {reached}")

    next_line = time.monotonic() + _LINE_SECONDS

    def print_running(training: ParallelTraining) -> None:
        nonlocal next_line
        if not quiet and time.monotonic() > next_line:
            next_line = time.monotonic() + _LINE_SECONDS
            running = (
                f"{task.name}, epoch {task.epochs} of {task.recipe.training.epochs}"
                for task, _ in training.running.values()
            )
            note(f"{training.progress()}: {'; '.join(running)}")

    why = "another `allneg reproduce` trains here; wait for it, or choose another --runs"
    with locked(left[0].runs, lambda: why), stop_signal() as stopped_by:
        single = [task for task in left if not task.members]
        training = ParallelTraining(single, parallel, stopped_by, add_result, print_running, limit)
        training.train()
        failed = training.failed
        if not training.waiting:
            failed |= _combine([task for task in left if task.members], add_result)
    message = f"{len(training.waiting)} runs are left; {TO_CONTINUE}"
    if training.signal_number:
        raise Interrupted(message, training.signal_number)
    if training.waiting:
        note(message)
    return failed


def _combine(tasks: Sequence[Task], add_result: Callable[[Task], None]) -> dict[str, AllnegError]:
    """Make the ensembles whose members are trained; what failed, by task."""
    from allneg.runs.ensemble import ensemble

    failed: dict[str, AllnegError] = {}
    for task in tasks:
        missing = [member for member in task.members if member.state != "finished"]
        try:
            if missing:
                names = ", ".join(member.cell.name for member in missing)
                raise RunError(f"its members are not trained: {names}")
            if task.state != "finished":
                shutil.rmtree(task.folder, ignore_errors=True)  # left by a process that was killed
                ensemble([member.folder for member in task.members], out=task.folder)
            add_result(task)
        except AllnegError as error:
            failed[task.name] = error
    return failed


def _print(results: Results, cells: Sequence[Cell], tasks: Sequence[Task], as_json: bool) -> None:
    """Print every cell: the paper's number, ours, the difference, and which seeds are missing."""
    output, rows = [], []
    for cell in cells:
        result = results.get(cell)
        ours = result.summary() if result else {}
        difference = ours["mrr"] - cell.paper.mrr if ours and cell.paper else None
        lacking = []
        for task in tasks:
            if task.cell == cell and not results.has(task):
                state = "recipe changed" if result and result.seed(task.seed) else task.state
                lacking.append({"seed": task.seed, "state": state})
        numbers = {"ours": ours or None, "difference": difference, "lacking": lacking}
        output.append({**asdict(cell), **numbers})
        hits, paper = ours.get("hits", {}), f"{cell.paper.mrr:.2f}" if cell.paper else None
        apart = f"{difference:+.3f}" if difference is not None else None
        made = ",".join(map(str, ours.get("seeds", [])))
        missing = "; ".join(f"seed {task['seed']}: {task['state']}" for task in lacking)
        mrrs = (paper, ours.get("mrr"), ours.get("spread"), apart)
        rows.append((cell.name, *mrrs, hits.get("1"), hits.get("10"), made, missing))
    if as_json:
        json_document({"quick": results.quick, "numbers": output})
    else:
        quick = "QUICK: small models of another graph; do not compare them with the paper"
        table(quick if results.quick else "filtered test MRR, mean over seeds", _COLUMNS, rows)
