"""The one way a model is measured: in training, by a user, by the explorer."""

from __future__ import annotations

from allneg.evaluation.protocol import PROTOCOLS, Protocol
from allneg.evaluation.ranks import rank
from allneg.evaluation.report import Report
from allneg.graph.graph import Graph
from allneg.models import Model
from allneg.recipe import Evaluation
from allneg.scoring.tables import Tables


def evaluate(
    model: Model,
    tables: Tables,
    graph: Graph,
    split: str = "test",
    protocol: Protocol = PROTOCOLS["allneg"],
    block: int = Evaluation.block,
) -> Report:
    """Rank every triple of a split from both sides, and report."""
    return Report.of(rank(model, tables, graph, split, protocol, block), graph)
