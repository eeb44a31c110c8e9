"""A search: every trial of a space runs once, in any number of processes that see its folder."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import Timeout

from allneg.errors import DataError, Diverged, Interrupted, OutOfMemoryError, UsageError
from allneg.evaluation import Report
from allneg.graph.graph import Graph
from allneg.graph.read import check_source, read_graph, source_name
from allneg.hardware import find_device
from allneg.kernels.engines import check_engine
from allneg.recipe import Mesh, merged
from allneg.recipes import find_recipe
from allneg.runs import plain
from allneg.runs.checkpoint import State
from allneg.runs.files import write_errors, write_json
from allneg.training.interrupt import interruptible
from allneg.tuning.progress import search_lines
from allneg.tuning.space import STATES, Space, Trial, TrialStatus, read_space
from allneg.tuning.study import JOURNAL, Study, rungs, write_plot
from allneg.tuning.trial_folder import TrialCallbacks, TrialFolder

SCHEMA_VERSION = 1
_POLL_SECONDS = 0.5  # while other processes run the remaining trials


def search(
    space: str | Path,
    data: Any = None,
    *,
    out: str | Path,
    trials: int | None = None,
    halving: bool = False,
    settings: Iterable[str] | Mapping[str, object] = (),
    progress: bool = False,
    stopped_by: Callable[[], int] | None = None,
) -> Search:
    """Run a trial for every combination of the settings in [search] of `space`.

    `space` is a file, or a shipped space such as search/paper-grid. `data` replaces the data that
    it names; it may be anything that `read_graph` takes. If a setting has a range, Optuna suggests
    `trials` combinations; `halving` stops bad trials early. Every trial runs once: the same call
    continues an interrupted search, or shares one with other processes. The best trial is the
    first of `statuses()` of the result; a search never ranks test. `progress` and `stopped_by` are
    as in `train`.
    """
    found = read_space(find_recipe(space), settings)
    if data is not None:
        check_source(data)
        found = replace(found, tables=merged(found.tables, {"data": {"name": source_name(data)}}))
    made = Search(found, Path(out), trials, halving, data)
    with interruptible(stopped_by) as stop:
        on_poll = search_lines(made) if progress else lambda: None
        made.run(stop, on_poll)
        on_poll()
    with contextlib.suppress(UsageError):  # matplotlib is optional
        write_plot(made.space, made.statuses(), made.out / "search.svg")
    made.check_success()
    return made


@dataclass
class PruneCallback(TrialCallbacks):
    """Reports every valid MRR to a trial of Optuna, which may then drop the trial."""

    record: Any = None  # of Optuna; None: the trial is never dropped

    def on_evaluation(self, state: State, report: Report) -> None:
        if self.record is not None:
            self.record.report(report.mrr, state.epoch)
            self.dropped = self.record.should_prune()


@dataclass(frozen=True)
class Search:
    """A space, the folder of its trials, and how to search it."""

    space: Space
    out: Path
    n_trials: int | None = None  # for ranges: how many trials to run
    halving: bool = False
    data: Any = None  # what to train on; None: the data that the space names

    def __post_init__(self) -> None:
        name, has_ranges = self.space.name, self.space.has_ranges
        if (self.out / "run.json").exists():
            raise UsageError(f"{self.out}: is a run, not a search; choose another --out")
        if not has_ranges and self.n_trials is not None:
            raise UsageError(f"{name}: --trials is for ranges; leave it out for lists of values")
        if has_ranges and self.n_trials is None and not (self.out / JOURNAL).exists():
            raise UsageError(f"{name}: [search] has ranges: give the number of trials by --trials")
        if self.halving:
            rungs(self.space)

    @cached_property
    def study(self) -> Study:
        return Study(self.space, self.out, self.halving)

    def suggested(self) -> list[Trial]:
        """The trials that Optuna suggested for ranges so far; it may repeat a suggestion."""
        has_study = self.space.has_ranges and (self.out / JOURNAL).exists()
        return self.study.trials() if has_study else []

    def trials(self) -> Sequence[Trial]:
        """All trials so far, without duplicates."""
        if not self.space.has_ranges:
            return self.space.trials
        return list({trial.id: trial for trial in self.suggested()}.values())

    def n_total(self) -> int:
        """How many trials the search will have."""
        return max(self.n_trials or 0, len(self.trials()))

    def n_left(self) -> int:
        """How many trials have not ended, those not yet suggested included."""
        return len(self._pending()) + max(0, (self.n_trials or 0) - len(self.suggested()))

    def statuses(self) -> list[TrialStatus]:
        """The status of every trial: finished ones first, the best valid MRR first."""
        statuses = [TrialFolder(self.out, trial).status() for trial in self.trials()]
        return sorted(
            statuses, key=lambda at: (STATES.index(at.state), -(at.valid_mrr or 0.0), at.trial.id)
        )

    def results(self) -> dict[str, Any]:
        """The content of results.json."""
        return {
            "schema_version": SCHEMA_VERSION,
            "space": self.space.name,
            "data": self.space.recipe.data.name,
            "selected_by": "valid MRR",
            "halving": rungs(self.space) if self.halving else None,
            "trials": [status.to_json() for status in self.statuses()],
        }

    def check(self) -> Graph:
        """Check devices, data and folder; return the graph."""
        for hardware in {trial.recipe.hardware for trial in self.space.trials}:
            check_engine(hardware.engine, find_device(hardware.device))
            Mesh.of(hardware.mesh, 1)  # one process trains a trial
        data = self.space.recipe.data
        graph = read_graph(data.name if self.data is None else self.data, data)
        if not len(graph.valid):
            raise DataError(f"{graph.name}: valid has no triples; a search selects by valid MRR")
        with write_errors(self.out):
            for name in ("trials", "locks"):
                (self.out / name).mkdir(parents=True, exist_ok=True)
        for trial in self.trials():
            folder = TrialFolder(self.out, trial)
            if (result := folder.result()) is not None:
                folder.check_data(result.data, graph)
        return graph

    def run(
        self, stopped_by: Callable[[], int] = lambda: 0, on_poll: Callable[[], None] = lambda: None
    ) -> None:
        """Run trials until all have ended, in this process or in others.

        A trial that a killed process left behind continues from its checkpoint. `stopped_by`
        returns the number of a signal that arrived, or 0. `on_poll` is called between trials.
        """
        graph, uses_optuna = self.check(), self.space.has_ranges or self.halving
        while True:
            on_poll()
            if number := stopped_by():
                raise Interrupted("stopped and saved; run the same command to continue", number)
            if any(self._attempt(trial, graph, stopped_by) for trial in self._pending()):
                continue
            if uses_optuna and self.study.update(self.n_trials or 0, self._result):
                continue
            if not self._pending():  # looked up again: another process may have added a trial
                break
            time.sleep(_POLL_SECONDS)
        self._write_results()

    def check_success(self) -> None:
        """Raise an error if every trial failed."""
        states = {status.state for status in self.statuses()}
        if states == {"diverged"}:
            raise Diverged(
                f"{self.out}: all trials diverged; search a lower optimizer.learning_rate"
            )
        if states <= {"diverged", "too large"}:
            raise OutOfMemoryError(f"{self.out}: all trials failed; search a lower model.dim")

    def ended(self) -> list[TrialStatus]:
        """The results of all trials that have ended."""
        return [result for trial in self.trials() if (result := self._result(trial)) is not None]

    def _pending(self) -> list[Trial]:
        return [trial for trial in self.trials() if self._result(trial) is None]

    def _result(self, trial: Trial) -> TrialStatus | None:
        """The result of a trial. Without halving, a dropped trial has none: it continues."""
        result = TrialFolder(self.out, trial).result()
        return None if result and result.state == "dropped" and not self.halving else result

    def _attempt(self, trial: Trial, graph: Graph, stopped_by: Callable[[], int]) -> bool:
        """Run a trial until it ends or a signal arrives; False if another process has it."""
        folder = TrialFolder(self.out, trial)
        try:
            with plain.lock(folder.lock, seconds=0), contextlib.suppress(Interrupted):
                if self._result(trial) is None:  # no other process has run it meanwhile
                    record = self.study.record(trial) if self.halving else None
                    folder.train(graph, stopped_by, PruneCallback(record=record))
        except Timeout:
            return False
        self._write_results()
        return True

    def _write_results(self) -> None:
        with plain.lock(self.out / "locks" / "results.lock"):
            write_json(self.out / "results.json", self.results())
