"""One trial: an ordinary run, a lock that makes it one process's, and the result that ends it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from allneg.errors import Diverged, OutOfMemoryError, RunError
from allneg.graph.check import graph_hashes
from allneg.graph.graph import Graph
from allneg.runs import Run, disk
from allneg.runs.epochs import best_of
from allneg.runs.files import full_disk_named, read_json, write_json
from allneg.training.loop import StopAt, fit
from allneg.training.search.space import Trial


@dataclass(frozen=True)
class Result:
    """How a trial ended, or how it stood when it was paused."""

    trial: str  # its id
    settings: Mapping[str, Any]  # the ones that are searched, by dotted name
    state: str  # finished, diverged, too large; in a rung's file also paused
    valid_mrr: float | None  # the best one; None where the trial has failed
    best_epoch: int | None
    epochs: int  # trained
    seconds: float  # spent training, in all sessions
    data: str  # a hash of the triples and the names
    reason: str | None = None  # why it has failed


@dataclass(frozen=True)
class Place:
    """Where a trial is kept in a search's folder."""

    out: Path
    trial: Trial

    @property
    def folder(self) -> Path:
        return self.out / "trials" / self.trial.id

    @property
    def lock(self) -> Path:
        return self.out / "locks" / f"{self.trial.id}.lock"

    def result(self, epochs: int | None = None) -> Result | None:
        """The result at the end, or after so many epochs; None where there is no whole one."""
        try:
            said = read_json(self._file(epochs))
        except RunError:
            return None
        return Result(**said) if _is_result(said) and said["trial"] == self.trial.id else None

    def write(self, result: Result, epochs: int | None = None) -> None:
        write_json(self._file(epochs), asdict(result))

    def _file(self, epochs: int | None) -> Path:
        return self.folder / ("result.json" if epochs is None else f"result-at-{epochs}.json")

    def is_held(self) -> bool:
        """Is a process at work on it?"""
        lock = FileLock(self.lock)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            return True
        lock.release()
        return False


def _is_result(said: Any) -> bool:
    if not isinstance(said, dict) or said.keys() != {each.name for each in fields(Result)}:
        return False
    kinds = {"state": str, "epochs": int, "seconds": float, "data": str, "settings": dict}
    perhaps = {"valid_mrr": float, "best_epoch": int, "reason": str}
    return all(type(said[name]) is kind for name, kind in kinds.items()) and all(
        said[name] is None or type(said[name]) is kind for name, kind in perhaps.items()
    )


def data_hash(graph: Graph) -> str:
    """Equal where graphs are."""
    return hashlib.sha256("".join(graph_hashes(graph).values()).encode()).hexdigest()[:16]


def attempt(
    place: Place, graph: Graph, stopped_by: Callable[[], int], epochs: int | None = None
) -> bool:
    """Train a trial to its end, or for so many epochs; False where another process has it.

    Test is not ranked: what a search has looked at cannot say how good its choice is.
    """
    lock = FileLock(place.lock)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return False
    try:
        # Another process may have been here since we looked.
        if place.result(epochs) is None:
            _train(place, graph, stopped_by, epochs)
    finally:
        lock.release()
    return True


def _train(place: Place, graph: Graph, stopped_by: Callable[[], int], epochs: int | None) -> None:
    run, ended = _opened(place, graph), place.result()
    if ended is None:
        state, reason = "finished", None
        try:
            fit(run, stopped_by=stopped_by, aim=StopAt("valid", epochs))
        except Diverged as problem:
            state, reason = "diverged", str(problem)
        except OutOfMemoryError as problem:
            state, reason = "too large", str(problem)
        if reason is not None or run.finished:
            ended = _measured(place.trial, run, state, reason=reason)
            place.write(ended)
    if epochs is not None:
        # A trial that ended later counts for what it had then: a rung compares at equal cost.
        state, reason = "paused", None
        if ended is not None and ended.reason is not None and ended.epochs < epochs:
            state, reason = ended.state, ended.reason
        place.write(_measured(place.trial, run, state, epochs, reason), epochs)


def _opened(place: Place, graph: Graph) -> Run:
    """The trial's run, as it was left or new."""
    folder = place.folder
    if not (folder / "run.json").exists():
        with full_disk_named(folder):
            disk.remove(folder)  # a process was killed while it made the run
        return Run.create(folder, place.trial.recipe, graph)
    run = Run.open(folder)
    here, there = data_hash(graph), data_hash(run.graph)
    if here != there:
        raise RunError(other_data(folder, there, here))
    return run


def other_data(folder: Path, there: str, here: str) -> str:
    """The message about a trial on data that has changed since."""
    return f"{folder}: trained on other data ({there}, now {here}); choose another --out"


def _measured(
    trial: Trial, run: Run, state: str, epochs: int | None = None, reason: str | None = None
) -> Result:
    """What a run has reached, by its end or after so many epochs."""
    metrics = [each for each in run.metrics() if epochs is None or each["epoch"] <= epochs]
    valid_mrr, best_epoch = best_of([] if reason else metrics)
    return Result(
        trial=trial.id,
        settings=trial.settings,
        state=state,
        valid_mrr=valid_mrr,
        best_epoch=best_epoch,
        epochs=len(metrics),
        seconds=metrics[-1]["seconds"] if metrics else 0.0,
        data=data_hash(run.graph),
        reason=reason,
    )
