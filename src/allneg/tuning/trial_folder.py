"""The folder of a trial: an ordinary run with a lock, which gives it to one process, and a result.

A trial has ended when it has a valid result file, and only the process that holds its lock runs it.
So any number of processes may share trials, and any may be killed.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from filelock import Timeout

from allneg.errors import Diverged, Interrupted, OutOfMemoryError, RunError, UsageError
from allneg.graph.check import graph_hashes
from allneg.graph.graph import Graph
from allneg.runs import Run, checkpoint, disk, plain
from allneg.runs.files import read_json, write_errors, write_json
from allneg.runs.run import best_of
from allneg.training.callbacks import Callbacks
from allneg.training.loop import fit
from allneg.tuning.space import Trial, TrialStatus

# The fields of result.json.
_RESULT_TYPES = get_type_hints(TrialStatus) | {"trial": str, "settings": dict, "data": str}


@dataclass
class TrialCallbacks(Callbacks):
    """Callbacks that may end a trial."""

    dropped: bool = False  # True: save the trial and end it
    reason: str | None = None  # why it failed; None: its valid MRR counts


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
        if not isinstance(read, dict) or read.keys() != _RESULT_TYPES.keys():
            return None
        has_types = all(isinstance(read[name], kind) for name, kind in _RESULT_TYPES.items())
        if not has_types or read["trial"] != self.trial.id:
            return None
        del read["settings"]
        return TrialStatus(**read | {"trial": self.trial})

    def status(self) -> TrialStatus:
        if (result := self.result()) is not None:
            return result
        metrics = self.metrics()
        state = "paused" if metrics else "waiting"
        if self.lock.exists():
            try:
                with plain.lock(self.lock, seconds=0):
                    pass
            except Timeout:
                state = "running"
        return self._measured(state, metrics)

    def train(self, graph: Graph, stopped_by: Callable[[], int], callbacks: TrialCallbacks) -> None:
        """Train the trial from its last checkpoint and write its result; the caller has the lock.

        `Interrupted` is raised, and there is no result, if `stopped_by` stops the training. Only
        valid is ranked: a search must not select by test.
        """
        run = self.open(graph)
        (self.folder / "result.json").unlink(missing_ok=True)
        state, reason = "finished", None
        try:
            fit(
                run, callbacks, lambda: stopped_by() or callbacks.dropped, split="valid",
                again="the same command",
            )  # fmt: skip
        except Diverged as error:
            state, reason = "diverged", str(error)
        except OutOfMemoryError as error:
            state, reason = "too large", str(error)
        except Interrupted:
            if not callbacks.dropped:
                raise
            state, reason = "dropped", callbacks.reason
        self._write_result(self._measured(state, run.metrics(), reason), graph)

    def drop(self, graph: Graph) -> None:
        """End a paused trial and delete its weights; the caller has the lock."""
        self._write_result(self._measured("dropped", self.metrics()), graph)
        with write_errors(self.folder):
            disk.remove(self.folder / "checkpoints")

    def rewind(self) -> None:
        """Drop the metrics of epochs that a killed process did not save; the caller has the lock.

        They would count in a comparison, but their weights are lost.
        """
        run = Run(self.folder, self.trial.recipe)
        if run.status["state"] == "running":
            checkpoints = self.folder / "checkpoints"
            saved = checkpoint.last_state(checkpoints).epoch if checkpoint.names(checkpoints) else 0
            run.rewind(saved)
            run.set_status("interrupted", epoch=saved)

    def metrics(self) -> list[dict[str, Any]]:
        return Run(self.folder, self.trial.recipe).metrics()

    def _write_result(self, status: TrialStatus, graph: Graph) -> None:
        write_json(self.folder / "result.json", {**status.to_json(), "data": data_hash(graph)})

    def open(self, graph: Graph) -> Run:
        """The trial's run, new or as it was left."""
        if not (self.folder / "run.json").exists():
            with write_errors(self.folder):
                disk.remove(self.folder)  # a process was killed while it made the run
            return Run.create(self.folder, self.trial.recipe, graph)
        run = Run.open(self.folder)
        self.check_data(data_hash(run.graph), graph)
        return run

    def check_data(self, before: str | None, graph: Graph) -> None:
        """Raise a `UsageError` if the trial was trained on other data: `before` is their hash."""
        if before != (now := data_hash(graph)):
            raise UsageError(
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
