"""Optuna's part of a search: it suggests, halving, stores and plots trials.

Only this file imports optuna, and only when it is needed. The study is in DIR/optuna.journal,
which `optuna-dashboard` reads, too.
"""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allneg.errors import UsageError, extra
from allneg.runs import plain
from allneg.runs.files import write_parts, write_text
from allneg.tuning.halving import KEEP
from allneg.tuning.halving import rungs as rungs_of
from allneg.tuning.space import Range, Space, Trial, TrialStatus

JOURNAL = "optuna.journal"
_NAME = "allneg"  # of the study


def rungs(space: Space) -> list[int]:
    """The epochs after which halving compares trials. Valid is always ranked there."""
    if fixed := {"training.epochs", "evaluation.every"} & space.axes.keys():
        raise UsageError(f"{space.name}: --halving needs a fixed {min(fixed)}; do not search it")
    if not (found := rungs_of(space.recipe)):
        raise UsageError(
            f"{space.name}: --halving compares trials where valid is ranked, which happens only "
            "at the end; lower evaluation.every"
        )
    return found


class Study:
    """An Optuna study in the folder of a search.

    A trial that is RUNNING in the study and whose lock is free was left by a killed process: the
    search continues it, so no trial is lost. Grids do not use Optuna's GridSampler, which may run
    a point twice.
    """

    def __init__(self, space: Space, out: Path, halving: bool) -> None:
        optuna = self._optuna = _import_optuna()
        self._space, self._file, self._axes = space, out / JOURNAL, _distributions(space)
        # The system releases this lock when its process is killed; Optuna's own lock stays.
        self._lock = plain.lock(out / "locks" / "study.lock")
        pruner = optuna.pruners.SuccessiveHalvingPruner(rungs(space)[0], KEEP) if halving else None
        with self._lock:
            _cut_half_line(self._file)
            backend = optuna.storages.journal.JournalFileBackend(str(self._file), self._lock)
            storage = optuna.storages.JournalStorage(backend)
            if not self._file.stat().st_size:
                optuna.create_study(storage=storage, study_name=_NAME, direction="maximize")
            self._study = optuna.load_study(study_name=_NAME, storage=storage, pruner=pruner)

    def trials(self) -> list[Trial]:
        """All trials of the study, in order; one may occur twice."""
        return [trial for trial, _ in self._records()]

    def update(self, n_trials: int, result: Callable[[Trial], TrialStatus | None]) -> bool:
        """Record new results, then suggest a trial unless there are `n_trials` already.

        True if a trial was added.
        """
        with self._lock:
            records = self._records()
            for trial, record in records:
                ended = None if record.state.is_finished() else result(trial)
                if ended is not None and ended.state == "dropped":
                    self._study.tell(record.number, state=self._optuna.trial.TrialState.PRUNED)
                elif ended is not None:
                    self._study.tell(record.number, ended.valid_mrr or 0.0)
            if len(records) >= n_trials:
                return False
            # Seeded by the past: the same past gives the same suggestion. The study is copied:
            # `ask` stores a trial in several steps, between which a process may be killed.
            sampler = self._optuna.samplers.TPESampler(seed=len(records), constant_liar=True)
            copy = self._optuna.create_study(direction="maximize", sampler=sampler)
            copy.add_trials(self._study.get_trials(deepcopy=False))
            settings = copy.ask(self._axes).params
            self._space.trial(settings)  # an error if the settings do not go together
            self._add(settings)
            return True

    def record(self, trial: Trial) -> Any:
        """Optuna's object for a trial that may be pruned; None if its record has ended."""
        with self._lock:
            records = {known.id: record for known, record in self._records()}
            record = records.get(trial.id)
            if record is None:  # of a grid
                self._add(trial.settings)
                record = self._study.get_trials(deepcopy=False)[-1]
        if record.state.is_finished():  # its result file was removed, or it was dropped before
            return None
        return self._optuna.trial.Trial(self._study, record._trial_id)

    def _records(self) -> list[tuple[Trial, Any]]:
        """Each trial with Optuna's record of it."""
        records = self._study.get_trials(deepcopy=False)
        try:
            for record in records:
                self._create(record.params, value=0.0)
        except ValueError:  # the file had other settings or ranges when this was suggested
            raise UsageError(
                f"{self._file}: has trials outside of {self._space.name}; choose another --out"
            ) from None
        return [(self._space.trial(record.params), record) for record in records]

    def _add(self, settings: Mapping[str, Any]) -> None:
        state = self._optuna.trial.TrialState.RUNNING
        self._study.add_trial(self._create(settings, state=state))

    def _create(self, settings: Mapping[str, Any], **more: Any) -> Any:
        create = self._optuna.trial.create_trial
        return create(params=dict(settings), distributions=self._axes, **more)


def write_plot(space: Space, statuses: Sequence[TrialStatus], path: Path) -> None:
    """Write an SVG with one axis per setting and one line per finished trial.

    Equal results give equal bytes.
    """
    optuna = _import_optuna()
    with extra("plots", path.name):
        import matplotlib
    matplotlib.use("agg")
    finished = [status for status in statuses if status.state == "finished"]
    if not finished:
        return
    study, axes = optuna.create_study(direction="maximize"), _distributions(space)
    for status in finished:
        params, value = dict(status.trial.settings), status.valid_mrr
        study.add_trial(optuna.trial.create_trial(params=params, distributions=axes, value=value))
    data, svg = Path(space.recipe.data.name).name, io.StringIO()
    title = f"{space.name} on {data}: {len(finished)} of {len(statuses)} trials finished"
    options: Any = {"svg.hashsalt": "allneg", "svg.fonttype": "none"}
    with matplotlib.rc_context(options), warnings.catch_warnings(action="ignore"):
        plot = optuna.visualization.matplotlib.plot_parallel_coordinate(
            study, list(space.axes), target_name="valid MRR"
        )
        # Optuna cuts long names off.
        plot.set_xticks(range(len(axes) + 1), ["valid MRR", *sorted(axes)], rotation=330)
        plot.set_title(title, y=1.03)
        plot.figure.set_size_inches(2.2 * len(space.axes) + 4, 4.6)
        plot.figure.savefig(svg, format="svg", metadata={"Date": None}, bbox_inches="tight")
    write_text(path, svg.getvalue())


def _cut_half_line(file: Path) -> None:
    """Remove a line that a full disk or a power failure cut off; Optuna would fail on it."""
    data = file.read_bytes() if file.exists() else b""
    if not data.endswith(b"\n"):
        write_parts(file, [data[: data.rfind(b"\n") + 1]])


def _distributions(space: Space) -> dict[str, Any]:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    found: dict[str, Any] = {}
    for name, axis in space.axes.items():
        if not isinstance(axis, Range):
            found[name] = CategoricalDistribution(axis)
        else:
            is_integer = isinstance(axis.low, int) and isinstance(axis.high, int)
            kind: Any = IntDistribution if is_integer else FloatDistribution
            found[name] = kind(axis.low, axis.high, log=axis.log)
    return found


def _import_optuna() -> Any:
    with extra("search", "a search with ranges, --halving or a plot"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    # A trial that continues from its checkpoint may rank an epoch again.
    warnings.filterwarnings("ignore", "The reported value is ignored")
    return optuna
