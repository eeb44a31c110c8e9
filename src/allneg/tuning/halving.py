"""Successive halving within a time budget: which trial to train next, and for how many epochs.

Decisions depend only on what the trials have reached and on the time left, so all processes of a
tuning make the same ones.
"""

import itertools
import math
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from allneg.recipe import Recipe
from allneg.runs.run import best_of
from allneg.tuning.neighbours import Step
from allneg.tuning.space import Trial, TrialStatus

KEEP = 3  # the best third of the trials at a rung goes on to the next one
FIRST_SHARE = 1 / 9  # of the epochs after which trials are first compared, at least
_MOST_SHARE = 1 / 3  # likewise, at most
_TRIALS = 30  # the first share is larger if as many trials reach it in half of the time
_FEW = 6  # trials at a rung before the worse half is dropped, and before any trains to its end
_SLACK = 1.1  # times the expected seconds
_NEAR = 0.95  # a model whose best MRR is lower, relative to the best model's, is tuned last


def rungs(recipe: Recipe, share: float = FIRST_SHARE) -> list[int]:
    """The epochs before the last after which halving compares trials. Valid is ranked there."""
    epochs, every = recipe.training.epochs, recipe.evaluation.every
    first = math.ceil(round(epochs * share / every, 6)) * every
    return [first * KEEP**i for i in range(3) if first * KEEP**i < epochs]


@dataclass(frozen=True)
class Progress:
    """What a trial has reached."""

    status: TrialStatus
    metrics: Sequence[Mapping[str, Any]] = ()
    share: float = FIRST_SHARE  # of the epochs after which it is first compared

    @property
    def trial(self) -> Trial:
        return self.status.trial

    @property
    def model(self) -> str:
        return self.trial.recipe.model.name

    @cached_property
    def rungs(self) -> list[int]:
        """The epochs of all rungs; the last one is the end."""
        return [*rungs(self.trial.recipe, self.share), self.trial.recipe.training.epochs]

    @cached_property
    def mrrs(self) -> list[float]:
        """The best valid MRR up to each rung that the trial has passed.

        A finished trial has passed all, however early it stopped; a failed one has MRR 0 at the
        first.
        """
        if self.status.reason is not None:
            return [0.0]
        is_finished = self.status.state == "finished"
        return [
            best_of(entry for entry in self.metrics if entry["epoch"] <= epoch)[0] or 0.0
            for epoch in self.rungs
            if is_finished or epoch <= self.status.epochs
        ]

    @property
    def is_at_rung(self) -> bool:
        """Whether the trial was saved right at a rung, where it waits for the others."""
        return self.status.state == "paused" and self.status.epochs in self.rungs[:-1]

    @property
    def next_rung(self) -> int:
        return next((epoch for epoch in self.rungs if epoch > self.status.epochs), self.rungs[-1])

    @property
    def seconds_per_epoch(self) -> float:
        return self.status.seconds / max(1, self.status.epochs)


@dataclass(frozen=True)
class Job:
    """A trial to train until it has these epochs."""

    trial: Trial
    epochs: int


def first_share(metrics: Sequence[Mapping[str, Any]], recipe: Recipe, seconds: float) -> float:
    """The share of its epochs after which a trial is first compared.

    An early comparison prefers trials that learn fast. So it is later if there is time for many:
    `metrics` of a trial by `recipe` tell how many full trainings fit in `seconds`. Only the epochs
    between its first two rankings count: the first ones may include the compilation of kernels.
    """
    every = recipe.evaluation.every
    if len(metrics) < 2 * every:
        return FIRST_SHARE
    between: float = metrics[2 * every - 1]["seconds"] - metrics[every - 1]["seconds"]
    full = between / every * recipe.training.epochs
    return min(_MOST_SHARE, max(FIRST_SHARE, seconds / max(full, 1e-9) / (2 * _TRIALS)))


@dataclass(frozen=True)
class Halving:
    """The state of a tuning: all trials so far, and the seconds left for training."""

    trials: Sequence[Progress]
    left: float
    share: float = FIRST_SHARE  # of the epochs after which new trials are first compared

    def ranked(self) -> list[Progress]:
        """Trials with weights and a valid MRR, the best first."""
        found = [at for at in self.trials if at.status.valid_mrr is not None]
        kept = [at for at in found if at.status.state != "dropped"]
        return sorted(kept, key=lambda at: (-(at.status.valid_mrr or 0.0), at.trial.id))

    def bases(self) -> list[Trial]:
        """The trials from which to take steps, in order.

        Models that are nearly as good as the best one take turns: the model that has trained for
        the shortest time comes first, so a slow model does not use up the time of the others.
        """
        best: dict[str, float] = defaultdict(float)
        seconds: dict[str, float] = defaultdict(float)
        for at in self.trials:
            best[at.model] = max(best[at.model], *at.mrrs[:1], 0.0)
            seconds[at.model] += at.status.seconds
        least = _NEAR * max(best.values(), default=0.0)

        def turn(at: Progress) -> tuple[bool, float]:
            is_near = best[at.model] >= least
            return not is_near, seconds[at.model] if is_near else 0.0

        return [at.trial for at in sorted(self.ranked(), key=turn)]

    def gains(self) -> dict[Step, float]:
        """How much each change of a single setting raised the MRR, on average.

        Two trials are compared at the last rung that both have passed.
        """
        found: dict[Step, list[float]] = defaultdict(list)
        passed = [at for at in self.trials if at.mrrs]
        for one, other in itertools.permutations(passed, 2):
            if (step := Step.between(one.trial, other.trial)) is not None:
                last = min(len(one.mrrs), len(other.mrrs)) - 1
                found[step].append(other.mrrs[last] - one.mrrs[last])
        return {step: statistics.fmean(values) for step, values in found.items()}

    def next_job(self, proposals: Iterable[Trial]) -> Job | None:
        """What to train next; None if there is nothing that no other process trains.

        The first job is the best trial, if the time left just suffices to train it to its end. Then
        come interrupted trials, trials to promote, new trials, and the best trial that waits.
        """
        if self.left <= 0:
            return None
        if (best := self._must_finish()) is not None:
            return Job(best.trial, best.rungs[-1])
        for at in self.trials:
            if at.status.state in ("paused", "waiting") and not at.is_at_rung:
                return Job(at.trial, at.next_rung)
        if (promoted := self._promoted()) is not None:
            return Job(promoted.trial, promoted.next_rung)
        for trial in proposals:
            new = Progress(TrialStatus(trial, "waiting"), share=self.share)
            if self._has_time(new):
                return Job(trial, new.rungs[0])
        waiting = [at for at in self.trials if at.is_at_rung]
        last = max(waiting, key=lambda at: (len(at.mrrs), at.mrrs[-1]), default=None)
        return None if last is None else Job(last.trial, last.rungs[-1])

    def to_drop(self) -> list[Trial]:
        """The trials of the worse half of a rung that has many."""
        found = []
        for rung in range(max((len(at.rungs) for at in self.trials), default=0) - 1):
            order = self._order(rung)
            worse = order[(len(order) + 1) // 2 :] if len(order) >= _FEW else []
            found += [at.trial for at in worse if at.is_at_rung and len(at.mrrs) == rung + 1]
        return found

    def _must_finish(self) -> Progress | None:
        """The best trial, if it must train to its end from now on to be ready in time."""
        best = next(iter(self.ranked()), None)
        return best if best is not None and 0 < self._seconds_to_end >= self.left else None

    @cached_property
    def _seconds_to_end(self) -> float:
        """How long the best trial trains to its end; 0 unless it waits for that."""
        best = next(iter(self.ranked()), None)
        if best is None or best.status.state != "paused":
            return 0.0
        epochs = self._expected_epochs(best.trial.recipe) - best.status.epochs
        return epochs * best.seconds_per_epoch * _SLACK

    def _has_time(self, new: Progress) -> bool:
        """Whether a new trial can reach its second rung, and the best one its end."""
        seconds = self._expected_seconds_per_epoch(new.trial.recipe) * _SLACK
        first, second = new.rungs[0], new.rungs[:2][-1]
        return max(seconds * second, seconds * first + self._seconds_to_end) <= self.left

    def _promoted(self) -> Progress | None:
        """A trial of the best third of its rung; the highest rung comes first.

        A trial trains to its end only if it is one of many: the best one does so anyway.
        """
        most = max((len(at.mrrs) for at in self.trials), default=0)
        for rung in reversed(range(most)):
            order = self._order(rung)
            for at in order[: len(order) // KEEP]:
                is_early = at.next_rung == at.rungs[-1] and len(order) < _FEW
                if at.is_at_rung and len(at.mrrs) == rung + 1 and not is_early:
                    return at
        return None

    def _order(self, rung: int) -> list[Progress]:
        """The trials that have passed a rung, the best there first."""
        passed = [at for at in self.trials if len(at.mrrs) > rung]
        return sorted(passed, key=lambda at: (-at.mrrs[rung], at.trial.id))

    def _expected_epochs(self, recipe: Recipe) -> int:
        """How many epochs a full training takes: training may stop early."""
        ended = [
            at.status.epochs
            for at in self.trials
            if at.status.state == "finished" and at.model == recipe.model.name
        ]
        return max(ended, default=recipe.training.epochs)

    def _expected_seconds_per_epoch(self, recipe: Recipe) -> float:
        """How long an epoch of a new trial takes; 0 for a model that was not measured yet.

        Of the trials with the most similar batch size, the fastest for its dim counts.
        """
        speeds = [
            (
                abs(math.log(recipe.training.batch_size / at.trial.recipe.training.batch_size)),
                at.seconds_per_epoch * recipe.model.dim / at.trial.recipe.model.dim,
            )
            for at in self.trials
            if at.model == recipe.model.name and at.status.epochs
        ]
        return min(speeds, default=(0.0, 0.0))[1]
