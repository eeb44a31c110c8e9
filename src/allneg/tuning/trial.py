"""One trial: an ordinary run, a lock that gives it to one process, and a result that ends it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from filelock import FileLock, Timeout

from allneg.errors import Diverged, Interrupted, OutOfMemoryError, RunError
from allneg.evaluation import Report
from allneg.graph.check import graph_hashes
from allneg.graph.graph import Graph
from allneg.runs import Run, disk
from allneg.runs.checkpoint import State
from allneg.runs.files import read_json, write_errors, write_json
from allneg.runs.run import best_of
from allneg.training.callbacks import Callbacks
from allneg.training.loop import fit
from allneg.tuning.space import Trial

STATES = ("finished", "running", "paused", "dropped", "diverged", "too large", "waiting")


@dataclass(frozen=True)
class TrialStatus:
    """How far a trial is, or how it ended."""

    trial: Trial
    state: str  # one of STATES; halving ends a trial as "dropped"
    valid_mrr: float | None = None  # the best so far; None for a trial that failed
    best_epoch: int | None = None
    epochs: int = 0  # trained
    seconds: float = 0.0  # of training, all sessions
    reason: str | None = None  # why it failed
    data: str | None = None  # a hash of the triples and the names, in a result

    def to_json(self) -> dict[str, Any]:
        fields = {name: value for name, value in vars(self).items() if name != "data"}
        return {**fields, "trial": self.trial.id, "settings": dict(self.trial.settings)}


# The fields of result.json.
_RESULT_TYPES = get_type_hints(TrialStatus) | {"trial": str, "settings": dict, "data": str}


@dataclass
class PruneCallback(Callbacks):
    """Reports every valid MRR to a trial of Optuna, which may then drop the trial."""

    trial: Any = None  # None: the trial is never dropped
    dropped: bool = False

    def on_evaluation(self, state: State, report: Report) -> None:
        if self.trial is not None:
            self.trial.report(report.mrr, state.epoch)
            self.dropped = self.trial.should_prune()


@dataclass(frozen=True)
class TrialFolder:
    """The files of a trial in the folder of its search."""

    out: Path
    trial: Trial

    @property
    def folder(self) -> Path:
        return self.out / "trials" / self.trial.id

    @property
    def lock(self) -> Path:
        return self.out / "locks" / f"{self.trial.id}.lock"

    def result(self) -> TrialStatus | None:
        """How the trial ended; None if there is no valid result file."""
        try:
            read = read_json(self.folder / "result.json")
        except RunError:
            return None
        if read.keys() != _RESULT_TYPES.keys():
            return None
        has_types = all(isinstance(read[name], kind) for name, kind in _RESULT_TYPES.items())
        if not has_types or read["trial"] != self.trial.id:
            return None
        del read["settings"]
        return TrialStatus(**read | {"trial": self.trial})

    def status(self) -> TrialStatus:
        if (result := self.result()) is not None:
            return result
        metrics = Run(self.folder, self.trial.recipe).metrics()
        state = "paused" if metrics else "waiting"
        if self.lock.exists():
            try:
                with FileLock(self.lock, timeout=0):
                    pass
            except Timeout:
                state = "running"
        return self._measured(state, metrics)

    def train(self, graph: Graph, stopped_by: Callable[[], int], pruning: PruneCallback) -> None:
        """Train the trial from its last checkpoint and write its result; the caller has the lock.

        Only valid is ranked: a search must not select by test.
        """
        run = self._open(graph)
        (self.folder / "result.json").unlink(missing_ok=True)
        state, reason = "finished", None
        try:
            fit(run, pruning, lambda: stopped_by() or pruning.dropped, split="valid")
        except Diverged as error:
            state, reason = "diverged", str(error)
        except OutOfMemoryError as error:
            state, reason = "too large", str(error)
        except Interrupted:
            if not pruning.dropped:
                raise
            state = "dropped"
        ended = self._measured(state, run.metrics(), reason)
        write_json(self.folder / "result.json", {**ended.to_json(), "data": data_hash(run.graph)})

    def _open(self, graph: Graph) -> Run:
        """The trial's run, new or as it was left."""
        if not (self.folder / "run.json").exists():
            with write_errors(self.folder):
                disk.remove(self.folder)  # a process was killed while it made the run
            return Run.create(self.folder, self.trial.recipe, graph)
        run = Run.open(self.folder)
        self.check_data(data_hash(run.graph), data_hash(graph))
        return run

    def check_data(self, before: str | None, now: str) -> None:
        if before != now:
            raise RunError(
                f"{self.folder}: trained on other data ({before}, now {now}); choose another --out"
            )

    def _measured(
        self, state: str, metrics: list[dict[str, Any]], reason: str | None = None
    ) -> TrialStatus:
        valid_mrr, best_epoch = best_of([] if reason else metrics)
        seconds = metrics[-1]["seconds"] if metrics else 0.0
        return TrialStatus(self.trial, state, valid_mrr, best_epoch, len(metrics), seconds, reason)


def data_hash(graph: Graph) -> str:
    """A hash that is equal for equal graphs."""
    return hashlib.sha256("".join(graph_hashes(graph).values()).encode()).hexdigest()[:16]
