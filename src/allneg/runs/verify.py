"""Is everything in a run's folder whole, and does it belong together?"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from allneg.errors import RunError, AllnegError
from allneg.evaluation import evaluate
from allneg.runs import checkpoint
from allneg.runs.files import read_json
from allneg.runs.lock import leftovers
from allneg.runs.run import Run
from allneg.runs.shards import files_of
from allneg.runs.shards import read as read_kind

_TRIES = 5  # at what a training may be changing
_ROUNDING = 1e-3  # by which a mean may differ where ranks were computed by something else


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    what: str
    wrong: str | None  # None when it is as it should be

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


def verify(folder: Path, rank: bool = False) -> list[Check]:
    """Check every file of a run; with `rank`, also rank again and compare with the report.

    Checks stand alone: after one fails, the others are still made, unless the folder is no run.
    """
    run = Run.open(folder)
    checks: list[tuple[str, Callable[[], object]]] = [
        ("names and triples", lambda: run.graph),
        ("environment", lambda: run.environment),
        ("status", lambda: run.status),
        ("metrics", lambda: _check_metrics(run)),
        ("last checkpoint", lambda: run.last()),
        *(
            (f"checkpoint {name}", lambda name=name: _check_checkpoint(run, name))
            for name in checkpoint.names(folder / "checkpoints")
        ),
        ("end", lambda: _check_end(run)),
        ("leftovers", lambda: _check_leftovers(run)),
    ]
    if run.has_report:
        checks.append(("report", lambda: run.report))
    if run.has_report and rank:
        checks.append(("report, ranked again", lambda: _check_ranks(run)))
    tries = 1 if run.free else _TRIES
    return [_made(what, check, tries) for what, check in [("recipe", lambda: run.recipe), *checks]]


def _made(what: str, check: Callable[[], object], tries: int = 1) -> Check:
    try:
        check()
    except AllnegError as problem:
        return _made(what, check, tries - 1) if tries > 1 else Check(what, str(problem))
    return Check(what, None)


def _check_metrics(run: Run) -> None:
    epochs = [entry.get("epoch") for entry in run.metrics()]
    if epochs != list(range(1, len(epochs) + 1)):
        raise RunError(f"{run.folder / 'metrics.jsonl'}: epochs are missing, double or out of order")
    saved = run.last()
    if saved and saved.state.epoch > len(epochs):
        raise RunError(
            f"{run.folder / 'metrics.jsonl'}: {len(epochs)} epochs, and the last checkpoint is "
            f"after epoch {saved.state.epoch}"
        )


def _check_end(run: Run) -> None:
    """Is all there that a run has once it is finished?"""
    state = run.status["state"]
    if run.has_report and state == "new":
        raise RunError(f"{run.folder / 'status.json'}: missing, and there is a report")
    if state != "finished":
        return
    run.need_weights()
    if not run.finished:
        raise RunError(f"{run.folder / 'report.json'}: missing, and the run is finished")


def _check_checkpoint(run: Run, name: str) -> None:
    where = run.folder / "checkpoints" / name
    if not where.exists():
        return  # a training has made newer ones meanwhile
    checkpoint.verify(where)
    listed = {*read_json(where / "manifest.json"), "manifest.json"}
    more = sorted({path.name for path in where.iterdir()} - listed)
    if more:
        raise RunError(f"{where / more[0]}: not in the manifest; it is not of this checkpoint")
    for kind in files_of(listed):
        tensors = read_kind(where, kind)
        if kind != "optimizer":
            run.check_shapes(tensors)
        _check_finite(f"{where}: {kind}", tensors)


def _check_finite(what: str, tensors: Mapping[str, torch.Tensor]) -> None:
    for name, each in tensors.items():
        if not each.isfinite().all():
            raise RunError(f"{what}: {name} has numbers that are not finite")


def _check_leftovers(run: Run) -> None:
    if not run.free:
        return  # they are its training's
    for left in leftovers(run.folder):
        raise RunError(f"{left}: left by a process that was killed; `allneg resume` sweeps it")


def _alike(one: Any, other: Any, slack: float) -> bool:
    """Are two parts of a report the same, but for the rounding of another device or engine?"""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        slack = _slack(one["count"]) if "count" in one else slack
        return one.keys() == other.keys() and all(
            _alike(one[name], other[name], slack) for name in one
        )
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=slack, abs_tol=slack)
    return bool(one == other)


def _slack(count: int) -> float:
    """By how much a mean over so many queries may differ: one may be at another place."""
    return max(_ROUNDING, 1 / max(1, count))


def _check_ranks(run: Run) -> None:
    told = run.report
    block = run.recipe.evaluation.block
    found = evaluate(run.model, run.tables(), run.graph, told.protocol["split"], block=block)
    again = found.to_json()
    for name, one in told.to_json().items():
        if not _alike(one, again[name], _slack(told.count)):
            differs = "not the same"
            if isinstance(one, (int, float)):
                differs = f"{one}, and {again[name]}"
            raise RunError(f"{run.folder / 'report.json'}: {name} is {differs} when ranked again")
