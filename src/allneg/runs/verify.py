"""Check that everything in a run's folder is complete and belongs together."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from allneg.errors import AllnegError, RunError
from allneg.evaluation import (
    Calibration,
    calibrate,
    evaluate,
    evaluate_baselines,
    selection_protocol,
)
from allneg.graph.queries import SIDES
from allneg.runs import checkpoint, plain, shards
from allneg.runs.folder import is_free, leftovers
from allneg.runs.run import Run, best_of
from allneg.scoring import Tables

_TRIES = 5  # for files that a running training may be changing
_RATE_TOLERANCE = 0.05  # difference of calibrated probabilities, likewise
_TOLERANCE = 1e-3  # difference of means that another device or kernel may cause


@dataclass(frozen=True)
class Check:
    """The result of one check."""

    what: str
    wrong: str | None  # None: nothing


def verify(folder: Path | str, rank: bool = False) -> list[Check]:
    """Check every file of a run; with `rank`, also rank again and compare with the report."""
    run = Run.open(folder)
    folder = run.folder
    checks: dict[str, Callable[[], object]] = {
        "recipe": lambda: run.recipe,
        "names and triples": lambda: run.graph,
        "environment": lambda: run.environment,
        "status": lambda: run.status,
        "metrics": lambda: _check_metrics(run),
        "last checkpoint": run.last,
    }
    for name in checkpoint.names(folder / "checkpoints"):
        path = folder / "checkpoints" / name
        checks[f"checkpoint {name}"] = lambda path=path: _check_checkpoint(run, path)  # type: ignore[misc]
    checks |= {"end": lambda: _check_end(run), "leftovers": lambda: _check_leftovers(run)}
    if run.has_report:
        checks["report"] = lambda: run.report
        if rank:
            checks["report, ranked again"] = lambda: _check_ranks(run)
    tries = 1 if is_free(folder) else _TRIES
    return [_make(what, check, tries) for what, check in checks.items()]


def _make(what: str, check: Callable[[], object], tries: int) -> Check:
    try:
        check()
    except AllnegError as error:
        return _make(what, check, tries - 1) if tries > 1 else Check(what, str(error))
    return Check(what, None)


def _check_metrics(run: Run) -> None:
    path = run.folder / "metrics.jsonl"
    metrics = run.metrics()
    epochs = [entry["epoch"] for entry in metrics]
    if epochs != list(range(1, len(epochs) + 1)):
        raise RunError(f"{path}: epochs are missing, repeated or out of order")
    saved = run.last()
    if saved and saved.state.epoch > len(epochs):
        raise RunError(
            f"{path}: {len(epochs)} epochs, but the last checkpoint is after {saved.state.epoch}"
        )
    if saved and saved.state.best_epoch:
        found, kept = best_of(metrics[: saved.state.epoch]), saved.state
        if found != (kept.best_mrr, kept.best_epoch):
            raise RunError(
                f"{path}: the best valid MRR is {found[0]}, epoch {found[1]}, but in the last "
                f"checkpoint {kept.best_mrr}, epoch {kept.best_epoch}"
            )


def _check_end(run: Run) -> None:
    """Does a finished run have its weights and its report?"""
    state = run.status["state"]
    if run.has_report and state == "new":
        raise RunError(f"{run.folder / 'status.json'}: missing, but there is a report")
    if state == "finished":
        run.need_weights()
        if not run.finished:
            raise RunError(f"{run.folder / 'report.json'}: missing, but the run is finished")


def _check_checkpoint(run: Run, folder: Path) -> None:
    if not plain.exists(folder):
        return  # a training has replaced it meanwhile
    kinds = checkpoint.verify(folder, run.id)
    expected = {folder / "manifest.json", folder / "state.json"}.union(*kinds.values())
    if extra := sorted(set(plain.entries(folder)) - expected):
        raise RunError(f"{extra[0]}: not in the manifest; move it away")
    for kind, paths in kinds.items():
        tensors = shards.read(paths)
        if kind != "optimizer":
            run.check_shapes(tensors)
        for name, tensor in tensors.items():
            if not tensor.isfinite().all():
                raise RunError(f"{folder}: {kind}: {name} has numbers that are not finite")


def _check_leftovers(run: Run) -> None:
    if is_free(run.folder) and (paths := leftovers(run.folder)):
        raise RunError(f"{paths[0]}: left by a killed process; `allneg resume` deletes it")


def _check_ranks(run: Run) -> None:
    stored, settings = run.report, run.recipe.evaluation
    split, rules = stored.protocol["split"], selection_protocol(settings)
    tables = run.tables()
    new = evaluate(run.model, tables, run.graph, split, rules, settings.block).to_json()
    new["baselines"] = evaluate_baselines(run.graph, split, rules) if stored.baselines else {}
    new.pop("calibration")
    if stored.calibration:
        _check_calibration(run, Calibration.from_json(stored.calibration), tables)
    for name, old in stored.to_json().items():
        if name in new and not _agree(old, new[name], stored.count):
            numbers = f"{old}, but {new[name]}" if isinstance(old, (int, float)) else "different"
            raise RunError(f"{run.folder / 'report.json'}: {name} is {numbers} when ranked again")


def _check_calibration(run: Run, old: Calibration, tables: Tables) -> None:
    new, margins = calibrate(run.model, tables, run.graph), -np.geomspace(1e-3, 10, 20)
    for side in SIDES:
        if new is None or abs(new(side, margins) - old(side, margins)).max() > _RATE_TOLERANCE:
            path = run.folder / "report.json"
            raise RunError(f"{path}: the calibration is different when it is learned again")


def _agree(old: Any, new: Any, count: int) -> bool:
    """Are two parts of a report equal, up to the rounding of another device or kernel?

    `count` queries were ranked; rounding may change the rank of one of them.
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        # Another version may have other metrics, but not other relations or sides.
        is_group = "count" not in new and any(isinstance(part, Mapping) for part in new.values())
        if is_group and old.keys() != new.keys():
            return False
        shared = old.keys() & new.keys()
        return all(_agree(old[name], new[name], old.get("count", count)) for name in shared)
    if isinstance(old, float) and isinstance(new, float):
        tolerance = max(_TOLERANCE, 1 / max(1, count))
        return math.isclose(old, new, rel_tol=tolerance, abs_tol=tolerance)
    return bool(old == new)
