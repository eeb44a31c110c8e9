"""Trying the settings of a space, each once, in any number of processes."""

from allneg.training.search.space import Space, Trial, read_space
from allneg.training.search.standing import Standing, results, standings, write_results
from allneg.training.search.work import checked, search

__all__ = [
    "Space",
    "Standing",
    "Trial",
    "checked",
    "read_space",
    "results",
    "search",
    "standings",
    "write_results",
]
