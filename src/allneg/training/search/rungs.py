"""Successive halving: all trials for a few epochs, the best third of them for more, and so on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from allneg.errors import RecipeError
from allneg.training.search.space import Space, Trial
from allneg.training.search.trial import Place

_SHARES = (9, 3)  # of the epochs; the last rung has them all
_KEPT = 3  # a third goes on


def rungs(space: Space) -> list[int]:
    """The epochs after which trials are compared, fewest first; the end is not among them.

    They are epochs at which valid is ranked anyway, so a trial that goes on to its end ends as if
    it had never been paused.
    """
    fixed = {"training.epochs", "evaluation.every"} & set(space.names)
    if fixed:
        raise RecipeError(f"{space.name}: --halving shares out the epochs; fix {min(fixed)}")
    epochs, every = space.recipe.training.epochs, space.recipe.evaluation.every
    found = {math.ceil(epochs / share / every) * every for share in _SHARES}
    return sorted(each for each in found if each < epochs)


def alive(space: Space, out: Path) -> Sequence[Trial]:
    """The trials that go on, as far as rungs are complete; the same to every process that asks."""
    trials: Sequence[Trial] = space.trials
    for epochs in rungs(space):
        found = [(Place(out, trial).result(epochs), trial) for trial in trials]
        if any(result is None for result, _ in found):
            break
        standing = [
            (-result.valid_mrr, trial.id, trial)
            for result, trial in found
            if result is not None and result.valid_mrr is not None
        ]
        ordered = sorted(standing, key=lambda each: each[:2])
        trials = [trial for *_, trial in ordered[: math.ceil(len(trials) / _KEPT)]]
    return trials
