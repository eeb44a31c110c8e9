"""Text → ids → queries. This door leaves torch alone; queries and known answers need it."""

from __future__ import annotations

from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.read import read_graph
from allneg.graph.vocabulary import Vocabulary

__all__ = ["SPLITS", "Graph", "Triples", "Vocabulary", "read_graph"]
