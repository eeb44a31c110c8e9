"""Optuna's part of a search: it suggests, prunes, stores and plots trials.

Only this file imports optuna, and only when it is needed. The study is in DIR/optuna.journal,
which `optuna-dashboard` reads, too.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from filelock import FileLock

from allneg.errors import RecipeError, RunError, UsageError
from allneg.evaluation import Report
from allneg.runs.checkpoint import State
from allneg.tuning.space import Range, Space, Trial
from allneg.tuning.trial import PruneCallback, TrialStatus

JOURNAL = "optuna.journal"
_NAME = "allneg"  # of the study
_FIRST_RUNG = 9  # halving first compares trials after a ninth of the epochs
_KEEP = 3  # and keeps the best third at each rung


def rungs(space: Space) -> list[int]:
    """The epochs after which halving compares trials. Valid is ranked there anyway."""
    if fixed := {"training.epochs", "evaluation.every"} & space.axes.keys():
        raise UsageError(f"{space.name}: --halving needs a fixed {min(fixed)}; do not search it")
    epochs, every = space.recipe.training.epochs, space.recipe.evaluation.every
    first = math.ceil(epochs / _FIRST_RUNG / every) * every
    if first >= epochs:
        raise UsageError(
            f"{space.name}: --halving compares trials where valid is ranked, which happens only "
            "at the end; lower evaluation.every"
        )
    return [first * _KEEP**i for i in range(3) if first * _KEEP**i < epochs]


class Study:
    """An Optuna study in the folder of a search.

    A trial that is RUNNING in the study and whose lock is free was left by a killed process: the
    search continues it, so a study never has stale trials. Optuna's GridSampler is not used: it
    may run a point twice.
    """

    def __init__(self, space: Space, out: Path, halving: bool) -> None:
        optuna = import_optuna()
        self._space, self._where = space, out / JOURNAL
        self._axes = distributions(space)
        # The system releases this lock when its process is killed; Optuna's own locks stay.
        self._lock = FileLock(out / "locks" / "study.lock")
        pruner = optuna.pruners.SuccessiveHalvingPruner(rungs(space)[0], _KEEP) if halving else None
        with self._lock:
            backend = optuna.storages.journal.JournalFileBackend(str(self._where), self._lock)
            storage = optuna.storages.JournalStorage(backend)
            if not self._where.stat().st_size:
                optuna.create_study(storage=storage, study_name=_NAME, direction="maximize")
            self._study = optuna.load_study(study_name=_NAME, storage=storage, pruner=pruner)

    def trials(self) -> list[Trial]:
        """All trials of the study, in order; one may occur twice."""
        return [trial for trial, _ in self._numbered()]

    def update(
        self, n_trials: int | None, result: Callable[[Trial], TrialStatus | None]
    ) -> bool:
        """Record new results, then suggest one more trial unless there are `n_trials` already.

        True if a trial was added.
        """
        optuna = import_optuna()
        with self._lock:
            found = self._numbered()
            for trial, frozen in found:
                ended = result(trial) if not frozen.state.is_finished() else None
                if ended is not None and ended.state == "dropped":
                    self._study.tell(frozen.number, state=optuna.trial.TrialState.PRUNED)
                elif ended is not None:
                    self._study.tell(frozen.number, ended.valid_mrr or 0.0)
            if not self._space.has_ranges or len(found) >= (n_trials or 0):
                return False
            # Seeded by the past: the same past gives the same suggestion.
            sampler = optuna.samplers.TPESampler(seed=len(found), constant_liar=True)
            self._study.sampler = sampler
            asked = self._study.ask(self._axes)
            try:
                self._space.trial(asked.params)
            except RecipeError:  # of a combination that the corners do not have
                self._study.tell(asked, state=optuna.trial.TrialState.FAIL)
                raise
            return True

    def pruning(self, trial: Trial) -> PruneCallback:
        """A callback that reports each ranking of valid and asks Optuna whether to go on."""
        optuna = import_optuna()
        with self._lock:
            frozen = next((one for each, one in self._numbered() if each.id == trial.id), None)
            if frozen is None:  # of a grid
                state = optuna.trial.TrialState.RUNNING
                self._study.add_trial(
                    optuna.trial.create_trial(
                        params=dict(trial.settings), distributions=self._axes, state=state
                    )
                )
                frozen = self._study.get_trials(deepcopy=False)[-1]
        return _Pruning(optuna.trial.Trial(self._study, frozen._trial_id))

    def _numbered(self) -> list[tuple[Trial, Any]]:
        """Each trial with Optuna's record of it."""
        optuna = import_optuna()
        found = []
        for frozen in self._study.get_trials(deepcopy=False):
            if frozen.state == optuna.trial.TrialState.FAIL:
                continue
            try:  # the file may have had other settings or ranges when this was suggested
                optuna.trial.create_trial(
                    params=frozen.params, distributions=self._axes, value=0.0
                )
            except ValueError:
                raise RunError(
                    f"{self._where}: has trials outside of {self._space.name}; choose another --out"
                ) from None
            found.append((self._space.trial(frozen.params), frozen))
        return found


class _Pruning(PruneCallback):
    def __init__(self, trial: Any) -> None:
        self._trial = trial

    def ranked(self, state: State, report: Report) -> None:
        self._trial.report(report.mrr, state.epoch)
        self.dropped = self._trial.should_prune()


def distributions(space: Space) -> dict[str, Any]:
    """The axes of a space as Optuna describes them."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for name, axis in space.axes.items():
        if not isinstance(axis, Range):
            found[name] = CategoricalDistribution(axis)
        elif axis.is_integer:
            found[name] = IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        else:
            found[name] = FloatDistribution(axis.low, axis.high, log=axis.log)
    return found


def parallel_coordinates(space: Space, statuses: Sequence[TrialStatus]) -> Any:
    """Optuna's plot of the finished trials, as matplotlib axes."""
    optuna = import_optuna()
    study = optuna.create_study(direction="maximize")
    for status in statuses:
        if status.state == "finished":
            params: Mapping[str, Any] = status.trial.settings
            study.add_trial(
                optuna.trial.create_trial(
                    params=dict(params), distributions=distributions(space), value=status.valid_mrr
                )
            )
    return optuna.visualization.matplotlib.plot_parallel_coordinate(
        study, list(space.axes), target_name="valid MRR"
    )


def import_optuna() -> Any:
    try:
        import optuna
    except ModuleNotFoundError:
        raise UsageError(
            "ranges, --halving and plots need Optuna: pip install 'allneg[search]'"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # A trial that continues from its checkpoint may rank an epoch again.
    warnings.filterwarnings("ignore", "The reported value is ignored")
    return optuna
