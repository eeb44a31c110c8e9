"""Hyperparameter search: grids run here, ranges and early stopping through Optuna."""

from allneg.tuning.search import Search
from allneg.tuning.space import Space, Trial, read_space
from allneg.tuning.trial import STATES, TrialFolder, TrialStatus

__all__ = ["STATES", "Search", "Space", "Trial", "TrialFolder", "TrialStatus", "read_space"]
