"""Trying the settings of a space, each once, in any number of processes."""

from allneg.training.search.asking import search_ranges
from allneg.training.search.ranges import Ranged, read_ranged
from allneg.training.search.space import Space, Trial, read_space
from allneg.training.search.standing import STATES, Standing, results, standings, write_results
from allneg.training.search.work import checked, search

__all__ = [
    "STATES",
    "Ranged",
    "Space",
    "Standing",
    "Trial",
    "checked",
    "read_ranged",
    "read_space",
    "results",
    "search",
    "search_ranges",
    "standings",
    "write_results",
]
