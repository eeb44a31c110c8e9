"""Queries → scores → loss."""

from allneg.scoring.objective import Objective
from allneg.scoring.scores import scores
from allneg.scoring.shard import Shard
from allneg.scoring.tables import Tables

__all__ = ["Objective", "Shard", "Tables", "scores"]
