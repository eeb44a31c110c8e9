"""Graphs from lists of ids, and a model that gives every triple a chosen score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from allneg.evaluation import Protocol
from allneg.evaluation.ranks import Ranking, rank
from allneg.graph import Graph, Triples, Vocabulary
from allneg.models import Model
from allneg.scoring import Shard, Tables

Ids = Sequence[tuple[int, int, int]]


class FixedScores(Model):
    """score(h, r, t) is number h * N + t of the relation's row, exactly."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        return _pick(head, relation.unflatten(1, (self.dim, self.dim)))

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        return _pick(tail, relation.unflatten(1, (self.dim, self.dim)).mT)

    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        assert entities.equal(torch.eye(self.dim))
        return query.clone()


def _pick(entity: Tensor, scores: Tensor) -> Tensor:
    """The row that each entity selects in its query's matrix: (B, N), (B, N, N) -> (B, N)."""
    return scores[torch.arange(len(entity)), entity.argmax(1)]


@dataclass(frozen=True)
class ScoredGraph:
    """A graph with a chosen score for every triple."""

    graph: Graph
    scores: Tensor  # float32 (R, N, N): by relation, head, tail

    @property
    def model(self) -> Model:
        return FixedScores(dim=self.graph.n_entities, scale=1.0)

    @property
    def tables(self) -> Tables:
        n = self.graph.n_entities
        return Tables(torch.eye(n), self.scores.flatten(1).clone(), Shard.whole(n), False)

    def rank(self, protocol: Protocol, split: str = "test", block: int = 1 << 20) -> Ranking:
        return rank(self.model, self.tables, self.graph, split, protocol, block)


@pytest.fixture(scope="session")
def scored_graph() -> Callable[..., ScoredGraph]:
    """`scored_graph(scores, train=[(0, 0, 1)], valid=[], test=[(1, 0, 0)])`."""

    def made(scores: Tensor, train: Ids, valid: Ids, test: Ids) -> ScoredGraph:
        n_relations, n_entities, _ = scores.shape
        names = Vocabulary(
            tuple(f"e{i}" for i in range(n_entities)), tuple(f"r{i}" for i in range(n_relations))
        )
        graph = Graph("scored", names, _triples(train), _triples(valid), _triples(test))
        return ScoredGraph(graph, scores.float())

    return made


def _triples(ids: Ids) -> Triples:
    return np.array(ids, dtype=np.int64).reshape(-1, 3)
