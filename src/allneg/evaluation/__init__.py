"""Scores → ranks → report."""

from allneg.evaluation.ranks import PROTOCOLS, Protocol, protocol
from allneg.evaluation.report import METRICS, Report, evaluate

__all__ = ["METRICS", "PROTOCOLS", "Protocol", "Report", "evaluate", "protocol"]
