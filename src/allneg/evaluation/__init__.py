"""Scores → ranks → report."""

from allneg.evaluation.baselines import evaluate_baselines
from allneg.evaluation.calibration import Calibration, calibrate
from allneg.evaluation.ranks import PROTOCOLS, Protocol, protocol, selection_protocol
from allneg.evaluation.report import METRICS, Report, evaluate

__all__ = [
    "METRICS", "PROTOCOLS", "Calibration", "Protocol", "Report", "calibrate", "evaluate",
    "evaluate_baselines", "protocol", "selection_protocol",
]  # fmt: skip
