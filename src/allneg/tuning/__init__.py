"""Hyperparameter search: grids run here, ranges and early stopping through Optuna."""

from allneg.tuning.search import Search, TrialFolder
from allneg.tuning.space import STATES, Space, Trial, TrialStatus, read_space

__all__ = ["STATES", "Search", "Space", "Trial", "TrialFolder", "TrialStatus", "read_space"]
