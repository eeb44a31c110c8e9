"""Scores → ranks → report."""

from allneg.evaluation.evaluate import evaluate
from allneg.evaluation.protocol import PROTOCOLS, Protocol, protocol
from allneg.evaluation.report import Report

__all__ = ["PROTOCOLS", "Protocol", "Report", "evaluate", "protocol"]
