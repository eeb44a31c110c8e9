"""Progress of a training on stderr, the signals that stop it, and reports on stdout."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn

from allneg.cli.output import echo, is_rank_zero, json_document, table
from allneg.errors import counted
from allneg.evaluation import Calibration, Report, selection_protocol
from allneg.evaluation.report import by_heading
from allneg.graph.queries import SIDES
from allneg.runs import Run
from allneg.runs.checkpoint import State
from allneg.terminal import clean, note
from allneg.training.callbacks import Callbacks, ProgressLines

if TYPE_CHECKING:
    from allneg.predict.predictor import Predictor

_BAR = 40  # characters of a bar


@contextlib.contextmanager
def training_progress(
    quiet: bool, parent: int | None = None
) -> Iterator[tuple[Callbacks, Callable[[], int]]]:
    """Callbacks that show progress, and the function of `stop_signal`."""
    with contextlib.ExitStack() as stack:
        callbacks = Callbacks()
        if not quiet and is_rank_zero():
            callbacks = _Bar(stack) if sys.stderr.isatty() else ProgressLines()
        yield callbacks, stack.enter_context(stop_signal(parent))


@contextlib.contextmanager
def stop_signal(parent: int | None = None) -> Iterator[Callable[[], int]]:
    """A function that returns the number of the first SIGINT or SIGTERM, or 0 before it.

    A worker also gets SIGTERM once `parent`, the process that started it, has ended: a closed
    terminal ends only that process. A second signal ends the process at once, but not under
    torchrun, which may pass a signal on twice and kills processes that take too long.
    """
    received: list[int] = []
    second_ends = "TORCHELASTIC_RUN_ID" not in os.environ
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def receive(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if second_ends:
            for handled in before:
                signal.signal(handled, signal.SIG_DFL)
            # Not by `print`: the signal may have interrupted one.
            with contextlib.suppress(OSError):
                os.write(2, b"\nsaving; repeat the signal to end at once, without saving\n")

    def stopped_by() -> int:
        if received:
            return received[0]
        # On Windows, the parent of a process in a virtual environment is a launcher.
        is_orphan = parent is not None and os.name != "nt" and os.getppid() != parent
        return signal.SIGTERM if is_orphan else 0

    for number in before:
        signal.signal(number, receive)
    try:
        yield stopped_by
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Bar(Callbacks):
    """A progress bar over all epochs, until `stack` closes; early stopping may end it sooner."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        self._progress = Progress(
            "{task.description}",
            BarColumn(),
            "{task.percentage:>3.0f} %",
            TimeElapsedColumn(),
            "at most",
            TimeRemainingColumn(),
            "{task.fields[mrr]}",
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task("reading", total=None, mrr="")
        stack.enter_context(self._progress)

    def on_start(self, epochs: int) -> None:
        self._epochs = epochs

    def on_message(self, line: str) -> None:
        for part in line.splitlines():
            self._progress.console.print(clean(part), markup=False, highlight=False)

    def on_step(self, state: State, n_steps: int) -> None:
        self._progress.update(
            self._task,
            description=f"epoch {state.epoch + 1} of {self._epochs}",
            completed=state.epoch * n_steps + state.step,
            total=self._epochs * n_steps,
        )

    def on_evaluation(self, state: State, report: Report) -> None:
        mrr = f"valid MRR {report.mrr:.4f}, best {state.best_mrr:.4f}"
        self._progress.update(self._task, mrr=mrr)


def print_run(run: Run, as_json: bool) -> None:
    """Print the report of a run, or why there is none."""
    if run.has_report or not run.finished:
        print_report(run.report, run, as_json)
        return
    reason = "trained; there is no valid or test split, so there is no report"
    if as_json:
        json_document({"run": str(run.folder), "mrr": None, "reason": reason})
    note(reason)
    note(f"run: {run.folder}")


def note_if_unfinished(run: Run) -> None:
    """Print a note if the weights of a run may still improve."""
    state = run.live_status["state"]
    if state != "finished":
        note(f"{run.folder} is not finished ({state}): these are its best weights so far")


def open_predictor(run: Path, device: str) -> Predictor:
    """The best weights of a run; a note if they may still improve."""
    from allneg.predict.predictor import Predictor

    predictor = Predictor.load(run, device)
    note_if_unfinished(Run.open(run))
    return predictor


def print_report(report: Report, run: Run, as_json: bool) -> None:
    if run.members:
        report = replace(report, ensemble=run.report.ensemble)
    if as_json:
        json_document({"run": str(run.folder), **report.to_json()})
        return
    protocol, unseen = report.protocol, report.unseen
    rows = [
        ("all", *cells(report.to_json())),
        *((f"? {side}", *cells(report.by_side[side])) for side in SIDES),
        *((name, *cells(metrics)) for name, metrics in report.by_category.items()),
        *((f"baseline: {name}", *cells(metrics)) for name, metrics in report.baselines.items()),
    ]
    title = f"{run.graph.name}, {protocol['split']}: {run.model_name}"
    columns = [*(f"{name}#" for name in by_heading(report.metrics)), "queries#"]
    table(title, ("", *columns), rows)
    _print_members(report)
    _print_relations(report, columns)
    echo(f"protocol {protocol['name']}: {protocol['in_words']}; {report.candidates:,} candidates")
    if report.ensemble:
        echo(f"weights of the members selected by MRR on valid, {report.ensemble['selection']}")
    elif len(run.graph.valid):
        rules = selection_protocol(run.recipe.evaluation)
        note_seen = "" if rules.filter == "all" else "; its MRR is not comparable with that of test"
        splits = " + ".join(rules.filter_splits("valid"))
        echo(f"weights selected by MRR on valid, filtered by {splits}{note_seen}")
    _print_reliability(report)
    low, high = report.pessimistic["mrr"], report.optimistic["mrr"]
    echo(f"MRR if the answer wins ties {high:.4f}, if it loses them {low:.4f}")
    if unseen["triples"] or unseen["dropped"]:
        echo(
            f"{counted(unseen['triples'], 'triple')} with entities not in train; "
            f"{unseen['dropped']:,} left out for entities or relations not in train"
        )
    echo(f"run: {run.folder}")


def _print_members(report: Report) -> None:
    """Print the members of an ensemble and the weights that most relations have."""
    if not (about := report.ensemble):
        return
    rows = [
        (member["run"], member["model"], member["valid_mrr"], weight)
        for member, weight in zip(about["members"], about["weights"], strict=True)
    ]
    rows.append(("ensemble", "", about["valid_mrr"], None))
    table("members", ("run", "model", "valid MRR#", "weight#"), rows)
    if (mrr := about.get("valid_mrr_cross_fitted")) is not None:  # reports of earlier versions
        echo(f"cross-fitted valid MRR of the ensemble {mrr:.4f}")
    if n_own := sum(map(len, about["by_relation"].values())):
        echo(f"other weights: {counted(n_own, 'side')} of relations; --json prints them")


def _print_relations(report: Report, columns: Sequence[str]) -> None:
    """Print both sides of each relation, beside the MRR of the best baseline."""
    rows = []
    largest = sorted(report.by_relation.items(), key=lambda item: -item[1]["count"])
    for name, metrics in largest:
        for side in SIDES:
            best = report.best_baseline(name, side)
            row = (name, f"? {side}", *cells(metrics[side]))
            rows.append(row if best is None else (*row, best))
    last = ["baseline#"] if report.baselines else []
    optional = [f"{name}?" if name in ("MR#", "Hits@3#") else name for name in columns]
    table("by relation", ("relation", "", *optional, *last), rows, most=40)
    if report.baselines:
        n_behind = len(report.sides_behind())
        echo(f"a baseline is as good or better in {n_behind} of {len(rows)} rows by relation")


def _print_reliability(report: Report) -> None:
    """Print how often answers with some calibrated probability are right."""
    if not report.calibration:
        return
    found = Calibration.from_json(report.calibration)
    rows = []
    for row in found.reliability["bins"]:
        places = [round(_BAR * row[name]) for name in ("right", "probability")]
        bar = "█" * places[0] + " " * (_BAR + 1 - places[0])
        plot = bar[: places[1]] + "│" + bar[places[1] + 1 :]  # where right = probability
        rows.append((row["probability"], row["right"], row["answers"], plot))
    columns = ("probability#", "right#", "answers#", "right; │ is the probability")
    table(f"reliability on {found.reliability['split']}", columns, rows)
    echo(f"probabilities by {found.description}")


def cells(metrics: Mapping[str, Any]) -> tuple[Any, ...]:
    cells = by_heading(metrics) | {"MR": f"{metrics['mr']:,.1f}"}
    return (*cells.values(), metrics["count"])
