"""The size of a graph, for plans without data."""

from __future__ import annotations

from dataclasses import dataclass

from allneg.graph.graph import Graph


@dataclass(frozen=True)
class Counts:
    """How many entities, relations and triples a graph has."""

    entities: int
    relations: int
    train: int  # triples
    valid: int = 0
    test: int = 0

    @classmethod
    def of(cls, graph: Graph) -> Counts:
        sizes = (len(graph.train), len(graph.valid), len(graph.test))
        return cls(graph.n_entities, graph.n_relations, *sizes)
