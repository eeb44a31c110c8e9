"""Optuna's tree-structured Parzen estimator: where to try next, by what was tried.

optuna is imported where it is used: lists of values need none.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from allneg.errors import RecipeError
from allneg.training.search.space import Axes, Range


@dataclass(frozen=True)
class Told:
    """A trial that was asked for before."""

    settings: Mapping[str, Any]
    valid_mrr: float | None  # 0 where it has diverged, None while it is at work


def suggested(axes: Axes, told: Sequence[Told]) -> dict[str, Any]:
    """The settings to try next: the same for the same past.

    The past is told anew each time, so there is no state but the search's own folder.
    """
    try:
        import optuna
    except ModuleNotFoundError:
        missing = "ranges take optuna, which is not installed: pip install 'allneg[search]'"
        raise RecipeError(missing) from None
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    spread: dict[str, Any] = {}
    for name, axis in axes.items():
        if not isinstance(axis, Range):
            spread[name] = CategoricalDistribution(axis)
        elif axis.is_whole:
            spread[name] = IntDistribution(int(axis.low), int(axis.high), log=axis.log)
        else:
            spread[name] = FloatDistribution(axis.low, axis.high, log=axis.log)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # constant_liar is called experimental
        sampler = optuna.samplers.TPESampler(seed=len(told), constant_liar=True)
        study = optuna.create_study(direction="maximize", sampler=sampler)
        for each in told:
            state = "RUNNING" if each.valid_mrr is None else "COMPLETE"
            study.add_trial(
                optuna.trial.create_trial(
                    params=dict(each.settings),
                    distributions=spread,
                    value=each.valid_mrr,
                    state=optuna.trial.TrialState[state],
                )
            )
        return dict(study.ask(spread).params)
