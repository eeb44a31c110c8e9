"""Scores → ranks → report."""

from allneg.evaluation.baselines import evaluate_baselines
from allneg.evaluation.calibration import Calibration, calibrate
from allneg.evaluation.ranks import PROTOCOLS, Protocol, protocol, selection_protocol
from allneg.evaluation.relations import evaluate_relations
from allneg.evaluation.report import Report, evaluate
from allneg.evaluation.within import Within

__all__ = [
    "PROTOCOLS", "Calibration", "Protocol", "Report", "Within", "calibrate", "evaluate",
    "evaluate_baselines", "evaluate_relations", "protocol", "selection_protocol",
]  # fmt: skip
