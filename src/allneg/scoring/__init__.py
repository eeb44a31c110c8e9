"""Queries → scores → losses and gradients."""

from allneg.scoring.distributed import Shard
from allneg.scoring.scores import scores
from allneg.scoring.tables import Tables

__all__ = ["Shard", "Tables", "scores"]
