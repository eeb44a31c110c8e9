"""The numbers of Jain et al. (2020), "Knowledge Base Completion: Baseline Strikes Back (Again)",
and ours beside them: recipe → run → result file → tables, figure, findings."""

from allneg.paper.numbers import NUMBERS, Number
from allneg.paper.results import Result, Results

__all__ = ["NUMBERS", "Number", "Result", "Results"]
