"""Knowledge graphs: text → ids → queries. Importing this package does not import torch."""

from allneg.graph.graph import SPLITS, Graph, Triples, Vocabulary
from allneg.graph.read import read_graph

__all__ = ["SPLITS", "Graph", "Triples", "Vocabulary", "read_graph"]
