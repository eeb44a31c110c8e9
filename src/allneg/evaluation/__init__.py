"""Scores → ranks → report."""

from allneg.evaluation.ranks import PROTOCOLS, Protocol, protocol, selection_protocol
from allneg.evaluation.report import METRICS, Report, evaluate

__all__ = [
    "METRICS", "PROTOCOLS", "Protocol", "Report", "evaluate", "protocol", "selection_protocol",
]  # fmt: skip
