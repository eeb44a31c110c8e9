"""Hyperparameter search: grids, ranges through Optuna, and tuning within a time budget."""

from allneg.tuning.search import Search
from allneg.tuning.space import Space, Trial, TrialStatus, read_space
from allneg.tuning.trial_folder import TrialFolder
from allneg.tuning.tune import DEFAULT_MODELS, Tuning, tune

__all__ = [
    "DEFAULT_MODELS",
    "Search",
    "Space",
    "Trial",
    "TrialFolder",
    "TrialStatus",
    "Tuning",
    "read_space",
    "tune",
]
