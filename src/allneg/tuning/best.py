"""The best run of a tuning: a finished run, alone or in an ensemble with counts of facts."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from allneg.errors import DataError, OutOfMemoryError
from allneg.runs import Run, disk, plain
from allneg.runs.copy import export
from allneg.runs.ensemble import Combination, combine
from allneg.runs.files import read_json, sync, write_errors, write_json
from allneg.training.loop import fit
from allneg.tuning.space import TrialStatus
from allneg.tuning.trial_folder import TrialFolder


@dataclass(frozen=True)
class BestRun:
    """The folder DIR/best of a tuning."""

    out: Path  # DIR
    device: torch.device

    @property
    def folder(self) -> Path:
        return self.out / "best"

    def result(self) -> dict[str, Any] | None:
        """What the best run is, with its metrics on test; None if it is not made yet."""
        if not plain.exists(self.folder):
            return None
        report = Run.open(self.folder).report
        return {
            **read_json(self.folder / "result.json"),
            "run": str(self.folder),
            report.protocol["split"]: report.metrics,
        }

    def is_made_of(self, status: TrialStatus, counts: str) -> bool:
        """Whether it is made of this trial, and with or without counts as asked for."""
        if (made := self.result()) is None:
            return False
        is_same = (made["trial"], made["epochs"]) == (status.trial.id, status.epochs)
        return is_same and counts in (made.get("counts", "off"), "no time")

    def make(self, status: TrialStatus, counts: str) -> None:
        """Make it from a trial that may have stopped at a rung.

        With `counts` "tried", and not "off" or "no time", it may be an ensemble with counts.
        """
        new = self.out / ".best"
        with write_errors(new):
            disk.remove(new)  # of a killed process
        trial = Run.open(TrialFolder(self.out, status.trial).folder)
        about = {**status.to_json(), "counts": counts, "members": [status.trial.id]}
        combination = self._combination(trial, status) if counts == "tried" else None
        if combination is None:
            _write_single(trial, status, new)
        else:
            combination.write(new)
            about["members"] = [member.name for member in combination.members]
            about["valid_mrr"] = combination.weighting.cross_fitted_mrr
        write_json(new / "result.json", about)
        with write_errors(self.folder):
            disk.remove(self.folder)
            disk.rename(new, self.folder)
        sync(self.out)

    def _combination(self, trial: Run, status: TrialStatus) -> Combination | None:
        """The ensemble of a trial and counts; None unless it is better on valid.

        Its weights are chosen by valid, too. So they are cross-fitted for the comparison.
        """
        try:
            found = combine([trial], self.device, counts=True)
        except (DataError, OutOfMemoryError):
            return None
        return found if found.weighting.cross_fitted_mrr > (status.valid_mrr or 0.0) else None


def _write_single(trial: Run, status: TrialStatus, new: Path) -> None:
    """Write a trial as a finished run, and rank test with it."""
    export(trial, new)
    run = Run.open(new)
    if status.state != "finished":
        run = run.with_settings({"training.epochs": status.epochs})
        run.write_recipe()
    fit(run, again="the same command")
