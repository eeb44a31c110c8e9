"""`tune`: the model and the recipe for a graph, found within a time budget."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import BaseFileLock

from allneg.errors import (
    AllnegError,
    DataError,
    Diverged,
    Interrupted,
    OutOfMemoryError,
    UsageError,
    close_names,
)
from allneg.evaluation import Report
from allneg.graph.read import read_graph, source_name
from allneg.hardware import find_device
from allneg.kernels.engines import check_engine
from allneg.models import MODELS
from allneg.recipe import Mesh, Recipe, parse_settings
from allneg.runs import Run, free_folder, plain
from allneg.runs.checkpoint import State
from allneg.runs.files import read_json, write_errors, write_json, write_text
from allneg.training.defaults import default_recipe
from allneg.training.interrupt import interruptible
from allneg.training.train import planned
from allneg.tuning.best import BestRun
from allneg.tuning.clock import Clock
from allneg.tuning.halving import Halving, Job, Progress, first_share
from allneg.tuning.neighbours import Neighbours
from allneg.tuning.plot import plot_curves
from allneg.tuning.progress import TuningLines, tuning_progress
from allneg.tuning.space import Trial, TrialStatus
from allneg.tuning.trial_folder import TrialCallbacks, TrialFolder, data_hash

DEFAULT_MODELS = ("complex", "rotate", "transe")
SCHEMA_VERSION = 1
# Shares of the time:
_TRAINING = 0.95  # training ends; then test is ranked
_FULL = 1 / 4  # a training at full size by the defaults
_SLOW = 1 / 9  # a model whose first trial takes longer to its first rung is left out
# Scores of valid that are ranked under all weights of two members, the time of test included: low
# estimates.
_SCORES_PER_SECOND = {"cpu": 1e6, "cuda": 1e8}
_POLL_SECONDS = 0.5  # while other processes train


def tune(
    data: Any,
    *,
    minutes: float,
    out: str | Path | None = None,
    models: str | Sequence[str] = DEFAULT_MODELS,
    settings: Iterable[str] | Mapping[str, object] = (),
    counts: bool = True,
    progress: bool = False,
    stopped_by: Callable[[], int] | None = None,
) -> Run:
    """Find a model and a recipe for `data` within a time budget, and return the best run.

    Trials start from the defaults of each model. They are compared by valid MRR, first after few
    epochs; the best of them train to their end. `settings` are the same in all trials. With
    `counts`, the best run is an ensemble of the best trial and counts of facts (as in `ensemble`)
    if this is better on valid. The folder `out`, or a new one under runs/, has all trials,
    results.json and the best run, whose report is on test. The same call continues a tuning that
    was interrupted. `progress` and `stopped_by` are as in `train`.
    """
    folder = free_folder(source_name(data), "tune") if out is None else Path(out)
    names = [models] if isinstance(models, str) else models
    tuning = Tuning(data, folder, minutes, names, settings, counts)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(interruptible(stopped_by))
        if progress:
            tuning.run(stop, stack.enter_context(tuning_progress(tuning, TuningLines(tuning))))
        else:
            tuning.run(stop)
    run = tuning.finish()
    with contextlib.suppress(UsageError):  # matplotlib is optional
        tuning.plot()
    return run


@dataclass
class _UntilRung(TrialCallbacks):
    """Stops a trial at a rung, or drops it if it is too slow."""

    epochs: int = 0  # of the rung
    is_late: Callable[[], bool] = lambda: False
    is_reached: bool = False

    def on_step(self, state: State, n_steps: int) -> None:
        if not self.is_reached and self.is_late():
            self.dropped = True
            self.reason = f"too slow: {state.epoch} of the first {self.epochs} epochs in time"

    def on_evaluation(self, state: State, report: Report) -> None:
        self.is_reached = state.epoch >= self.epochs


class Tuning:
    """A graph, the folder of its trials, and the time to find the best recipe.

    Trials, their locks and their results are as in a search. So any number of processes may call
    `run` at the same time, and any may be killed.
    """

    def __init__(
        self,
        data: Any,
        out: Path,
        minutes: float,
        models: Sequence[str] = DEFAULT_MODELS,
        settings: Iterable[str] | Mapping[str, object] = (),
        counts: bool = True,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Check the arguments and read the data; then create the folder, or open it again."""
        start = now()
        if not minutes > 0:
            raise UsageError(f"minutes must be above 0, not {minutes}")
        if not models:
            raise UsageError(f"give at least one of the models {', '.join(MODELS)}")
        for name in models:
            if name not in MODELS:
                known = close_names(name, MODELS) or f"; known: {', '.join(MODELS)}"
                raise UsageError(f"there is no model {name!r}{known}")
        self.data, self.out, self.minutes = source_name(data), out, minutes
        self.models, self.counts = tuple(models), counts
        self._given = parse_settings(settings)
        if "name" in self._given.get("model", {}):
            raise UsageError("model.name is tuned: choose the models by --models")
        plan = planned(data, settings=self._settings("data", "hardware"))
        self.device = find_device(plan.hardware.device)
        check_engine(plan.hardware.engine, self.device)
        Mesh.of(plan.hardware.mesh, 1)  # one process trains a trial
        self.graph = read_graph(data, plan.data)
        if not len(self.graph.valid):
            raise DataError(f"{self.graph.name}: valid has no triples; tuning selects by valid MRR")
        self.neighbours = Neighbours(self._open(), frozenset(self._settings(*self._given)))
        self.clock = Clock(out / "clock.json", now, start)
        self.best = BestRun(out, self.device)
        self._known: dict[str, Trial] = {}  # by id

    @property
    def left(self) -> float:
        """The seconds that are left for training."""
        return 60 * self.minutes * _TRAINING - self.clock.seconds

    @property
    def minutes_left(self) -> float:
        return max(0.0, self.minutes - self.clock.seconds / 60)

    def trials(self) -> list[Trial]:
        """All trials so far."""
        for folder in plain.entries(self.out / "trials"):
            if folder.name not in self._known and plain.exists(folder / "run.json"):
                self._known[folder.name] = self.neighbours.trial(Run.open(folder).recipe)
        return list(self._known.values())

    def statuses(self) -> list[TrialStatus]:
        """The status of every trial, the best valid MRR first."""
        statuses = [TrialFolder(self.out, trial).status() for trial in self.trials()]
        return sorted(statuses, key=lambda at: (-(at.valid_mrr or 0.0), at.trial.id))

    def run(
        self, stopped_by: Callable[[], int] = lambda: 0, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        """Train trials until the time is over, or until nothing is left to try.

        `stopped_by` returns the number of a signal that arrived, or 0. `on_poll` is called after
        every step.
        """

        def poll() -> int:
            self.clock.tick()
            on_poll()
            return stopped_by()

        while True:
            if number := poll():
                self.clock.write()
                message = f"stopped and saved; the same command with --out {self.out} continues"
                raise Interrupted(message, number)
            if (claimed := self._claim()) is not None:
                self._train(*claimed, poll)
                self._write_results()
            elif any(at.state == "running" for at in self.statuses()):
                time.sleep(_POLL_SECONDS)  # its result may lead to a new trial, or win
            else:
                break
        self.clock.write()

    def n_left(self) -> int:
        """1 if there is something to train, else 0."""
        return int(self._next() is not None)

    def finish(self) -> Run:
        """Make DIR/best of the best trial, rank test with it, and return it.

        Test is ranked once: nothing changes if the best trial is the same as before.
        """
        with self._lock("best"):
            self._rewind()
            ranked = self._halving().ranked()
            if not ranked:
                raise self._failure()
            status, counts = ranked[0].status, self._counting()
            if not self.best.is_made_of(status, counts):
                self.best.make(status, counts)
            write_text(self.out / "best.toml", status.trial.recipe.to_toml())
        self._write_results()
        return Run.open(self.out / "best")

    def plot(self) -> None:
        """Write DIR/trials.png; a `UsageError` without matplotlib."""
        title = f"{self.graph.name}: {len(self.trials())} trials"
        plot_curves(title, self._halving().trials, self.out / "trials.png")

    def results(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            "schema_version": SCHEMA_VERSION,
            "data": self.data,
            "minutes": self.minutes,
            "seconds": self.clock.seconds,
            "selected_by": "valid MRR",
            "best": self.best.result(),
            "trials": [status.to_json() for status in self.statuses()],
        }

    def _settings(self, *parts: str) -> dict[str, Any]:
        """The settings of these parts that all trials share, by dotted name."""
        tables = {part: self._given.get(part, {}) for part in parts}
        return {f"{part}.{name}": tables[part][name] for part in parts for name in tables[part]}

    def _open(self) -> dict[str, Recipe]:
        """Create the folder, or check that it is this tuning's; the defaults of every model.

        A file keeps the defaults, since they may depend on the speed of the machine.
        """
        file = self.out / "tune.json"
        about = {"data": data_hash(self.graph), "settings": self._given}

        def stored() -> dict[str, Recipe]:
            if not plain.exists(file):
                return {}
            found = read_json(file)
            for name in about:
                if found.get(name) != about[name]:
                    raise UsageError(f"{self.out}: started with other {name}; choose another --out")
            tables = found["defaults"]
            return {model: Recipe.from_saved(tables[model], str(file)) for model in tables}

        if self.out.exists() and not self.out.is_dir():
            raise UsageError(f"{self.out}: exists and is not a folder; choose another --out")
        if not plain.exists(file) and any(at.name != "locks" for at in plain.entries(self.out)):
            raise UsageError(f"{self.out}: not empty and not a tuning; choose another --out")
        defaults = stored()
        defaults |= {model: self._default(model) for model in self.models if model not in defaults}
        with write_errors(self.out):
            (self.out / "locks").mkdir(parents=True, exist_ok=True)
            with self._lock("plan"):
                defaults |= stored()  # another process may have been faster
                tables = {model: recipe.to_tables() for model, recipe in defaults.items()}
                write_json(file, {**about, "defaults": tables})
            (self.out / "trials").mkdir(exist_ok=True)
        return defaults

    def _default(self, model: str) -> Recipe:
        settings, seconds = self._settings(*self._given), 60 * self.minutes * _FULL
        recipe = default_recipe(model, self.graph, self.device, settings, seconds)
        return planned(self.data, model=model, recipe=recipe)

    def _lock(self, name: str) -> BaseFileLock:
        return plain.lock(self.out / "locks" / f"{name}.lock")

    def _halving(self) -> Halving:
        folders = [TrialFolder(self.out, trial) for trial in self.trials()]
        found = [(folder.status(), folder.metrics()) for folder in folders]
        default = self.neighbours.trial(self.neighbours.defaults[self.models[0]])
        known = [metrics for status, metrics in found if status.trial.id == default.id]
        seconds = 60 * self.minutes * _TRAINING
        share = first_share(known[0] if known else [], default.recipe, seconds)
        return Halving([Progress(*at, share) for at in found], self.left, share)

    def _next(self) -> Job | None:
        halving = self._halving()
        tried = {at.trial.id for at in halving.trials}
        bases = [trial for trial in halving.bases() if trial.recipe.model.name in self.models]
        new = self.neighbours.proposals(self.models, bases, halving.gains())
        return halving.next_job(trial for trial in new if trial.id not in tried)

    def _claim(self) -> tuple[Job, BaseFileLock] | None:
        """The next job, and the lock of its trial, which is held."""
        with self._lock("plan"):
            self._rewind()
            for trial in self._halving().to_drop():
                TrialFolder(self.out, trial).drop(self.graph)
            if (job := self._next()) is None:
                return None
            folder = TrialFolder(self.out, job.trial)
            lock = plain.lock(folder.lock)
            lock.acquire()  # at most `status` holds it, for a moment
            if not plain.exists(folder.folder / "run.json"):
                folder.open(self.graph)  # from now on, all processes see the trial
            return job, lock

    def _rewind(self) -> None:
        """Forget what killed processes did not save."""
        for status in self.statuses():
            if status.state == "paused":
                TrialFolder(self.out, status.trial).rewind()

    def _train(self, job: Job, lock: BaseFileLock, poll: Callable[[], int]) -> None:
        """Train a trial to a rung, to its end, or until the time is over; release its lock."""
        folder = TrialFolder(self.out, job.trial)
        end = self.clock.seconds + 60 * self.minutes * _SLOW
        ranked = {at.trial.recipe.model.name for at in self.statuses() if at.valid_mrr is not None}
        until = _UntilRung(epochs=job.epochs)
        if ranked and job.trial.recipe.model.name not in ranked:
            until.is_late = lambda: self.clock.seconds > end
        with contextlib.ExitStack() as stack:
            stack.callback(lock.release)
            stack.enter_context(contextlib.suppress(Interrupted))
            folder.train(self.graph, lambda: poll() or until.is_reached or self.left <= 0, until)

    def _counting(self) -> str:
        """Whether an ensemble with counts is tried: "off", "no time" or "tried"."""
        if not self.counts:
            return "off"
        n_scores = 2 * len(self.graph.valid) * self.graph.n_entities
        seconds = n_scores / _SCORES_PER_SECOND.get(self.device.type, math.inf)
        return "tried" if seconds < 60 * self.minutes_left else "no time"

    def _failure(self) -> AllnegError:
        states = {at.state for at in self.statuses()}
        if states == {"diverged"}:
            return Diverged(f"{self.out}: all trials diverged; --set a lower learning rate")
        if states and states <= {"diverged", "too large"}:
            return OutOfMemoryError(f"{self.out}: all trials failed; --set a lower model.dim")
        return UsageError(f"{self.out}: no trial ranked valid within the time; give more --minutes")

    def _write_results(self) -> None:
        with self._lock("results"):
            write_json(self.out / "results.json", self.results())
