"""How the trials of a search stand, and the file that says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from allneg.runs import Run
from allneg.runs.epochs import best_of
from allneg.runs.files import write_json
from allneg.training.search.rungs import alive, rungs
from allneg.training.search.space import Space, Trial
from allneg.training.search.trial import Place

# From the ones that can be chosen to the ones that are not begun.
STATES = ("finished", "running", "paused", "dropped", "diverged", "too large", "waiting")
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Standing:
    """How far a trial came."""

    trial: Trial
    state: str  # one of STATES; it is halving that drops
    valid_mrr: float | None = None  # the best so far
    best_epoch: int | None = None
    epochs: int = 0  # trained
    seconds: float = 0.0  # spent training
    reason: str | None = None  # why it has failed

    def to_json(self) -> dict[str, Any]:
        return {
            "trial": self.trial.id,
            "settings": dict(self.trial.settings),
            "state": self.state,
            "valid_mrr": self.valid_mrr,
            "best_epoch": self.best_epoch,
            "epochs": self.epochs,
            "seconds": self.seconds,
            "reason": self.reason,
        }


def standings(space: Space, out: Path, halving: bool = False) -> list[Standing]:
    """Every trial once: first the finished ones, by valid MRR, then those that may still be."""
    goes_on = {trial.id for trial in alive(space, out)} if halving else None
    found = [_standing(Place(out, trial), goes_on) for trial in space.trials]
    return sorted(
        found,
        key=lambda each: (STATES.index(each.state), -(each.valid_mrr or 0.0), each.trial.id),
    )


def results(space: Space, found: Sequence[Standing], halving: bool = False) -> dict[str, Any]:
    """What results.json holds."""
    return {
        "schema_version": SCHEMA_VERSION,
        "space": space.name,
        "data": space.recipe.data.name if space.trials else None,  # nothing was asked for yet
        "selected_by": "valid MRR",
        "halving": rungs(space) if halving else None,
        "trials": [each.to_json() for each in found],
    }


def write_results(space: Space, out: Path, halving: bool = False) -> None:
    # Processes that end trials at the same moment would write the same temporary file.
    with FileLock(out / "locks" / "results.lock"):
        found = standings(space, out, halving)
        write_json(out / "results.json", results(space, found, halving))


def _standing(place: Place, goes_on: set[str] | None) -> Standing:
    trial, ended = place.trial, place.result()
    if ended is not None:
        return Standing(
            trial,
            ended.state,
            ended.valid_mrr,
            ended.best_epoch,
            ended.epochs,
            ended.seconds,
            ended.reason,
        )
    if not (place.folder / "metrics.jsonl").exists():
        held = place.lock.exists() and place.is_held()
        return Standing(trial, "running" if held else "waiting")
    if goes_on is not None and trial.id not in goes_on:
        state = "dropped"
    else:
        state = "running" if place.is_held() else "paused"
    metrics = Run(place.folder, trial.recipe).metrics()
    return Standing(
        trial,
        state,
        *best_of(metrics),
        len(metrics),
        metrics[-1]["seconds"] if metrics else 0.0,
    )
