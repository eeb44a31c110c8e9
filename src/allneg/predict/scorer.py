"""Ids in, numbers out: the scores that answers, probabilities and searches are made of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from allneg.errors import Diverged
from allneg.graph.graph import Graph, Triples
from allneg.graph.queries import KnownAnswers, Queries, Side
from allneg.models import Model
from allneg.models.ensemble import Ensemble
from allneg.scoring import Tables
from allneg.scoring.scores import query_vectors, scores

_MAX_NUMBERS = 1 << 24  # of the rows of facts that are scored at once


@dataclass(frozen=True)
class Scorer:
    """A model, its weights and the graph they were trained on."""

    model: Model
    tables: Tables
    graph: Graph
    known: dict[str, KnownAnswers]  # by split
    packed: Tensor | None = None  # a copy of the entity rows in the layout that CPUs prefer

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """The score of every entity as the answer: float32 (B, N). The caller may overwrite it."""
        values = scores(self.model, self.tables, queries, self.packed).float()
        if self._taken is not None:
            rows, answers = self.known["train"].pairs(queries)
            values[rows, answers] += self._taken[self.tables.relation_ids(queries)[rows]]
        return values

    @torch.no_grad()
    def fact_scores(self, facts: Tensor, side: Side) -> Tensor:
        """The score of each fact as the answer to its query on one side: (n, 3) -> (n,)."""
        parts = []
        for block in facts.split(max(1, _MAX_NUMBERS // self.model.entity_width)):
            queries = Queries.of(block, side)
            query = query_vectors(self.model, self.tables, queries)
            rows = self.tables.entity_rows(queries.answer).unsqueeze(1)
            values = self.model.kernel.scores(query, rows).squeeze(1).float()
            parts.append(self._give_back(values, queries))
        return torch.cat(parts)

    @cached_property
    def _taken(self) -> Tensor | None:
        """What counts of an ensemble take from the score of a fact of train, by relation row.

        A fact must not lower its own score: `scores` and `_give_back` add this again.
        """
        if not isinstance(self.model, Ensemble) or "train" not in self.known:
            return None
        return self.model.taken(self.tables.relations.detach())

    def _give_back(self, values: Tensor, queries: Queries) -> Tensor:
        """The scores of the queries' own answers without what counts take from facts of train."""
        if self._taken is None:
            return values
        is_known = self.known["train"].contains(queries, queries.answer.unsqueeze(1)).squeeze(1)
        return values + is_known * self._taken[self.tables.relation_ids(queries)]

    def log_sum_of_new(self, values: Tensor, queries: Queries) -> Tensor:
        """log Σ exp over the scores (B, N) of entities that are no answers in train: (B,)."""
        if "train" not in self.known:
            return values.logsumexp(1)
        answers = self.known["train"].pairs(queries)
        kept = values[answers]
        values[answers] = -torch.inf  # for a moment, rather than in a copy
        total = values.logsumexp(1)
        values[answers] = kept
        return total

    def n_others(self, queries: Queries) -> Tensor:
        """How many other answers than its own train has to each query: (B,)."""
        if "train" not in self.known:
            return torch.zeros_like(queries.answer)
        known = self.known["train"]
        is_known = known.contains(queries, queries.answer.unsqueeze(1)).squeeze(1)
        return known.counts(queries) - is_known.long()

    def splits_of(self, facts: Triples) -> list[str | None]:
        """The first split that holds each fact, or None: (n, 3) -> n."""
        queries = Queries.of(torch.from_numpy(facts).to(self.tables.device), "tail")
        return [split for (split,) in self._splits(queries, queries.answer.unsqueeze(1))]

    def _splits(self, queries: Queries, candidates: Tensor) -> list[list[str | None]]:
        """The first split that holds each candidate as an answer, or None: (B, K)."""
        found: list[list[str | None]] = [[None] * candidates.shape[1] for _ in candidates]
        for split in reversed(list(self.known)):
            for b, k in self.known[split].contains(queries, candidates).nonzero().tolist():
                found[b][k] = split
        return found

    @cached_property
    def vectors(self) -> EntityVectors:
        """The entity vectors without biases, for similarities."""
        return EntityVectors(self.model.coordinates(self.tables.entities.detach()))


class EntityVectors:
    """The vectors of all entities: (N, W). Similarity is their cosine."""

    def __init__(self, rows: Tensor) -> None:
        self.rows, self.norms = rows, rows.norm(dim=1).clamp(min=1e-12)

    @torch.no_grad()
    def nearest(self, entity: int, k: int) -> list[tuple[int, float]]:
        """The `k` entities most similar to one, without itself, and their cosines."""
        cosines = (self.rows @ self.rows[entity]) / self.norms[entity] / self.norms
        cosines[entity] = -torch.inf
        best, ids = cosines.topk(min(k, len(cosines) - 1))
        return list(zip(ids.tolist(), best.tolist(), strict=True))

    @torch.no_grad()
    def similarities(self, entity: int, others: list[int]) -> list[float]:
        """The cosine of one entity with each of the others."""
        ids = torch.tensor([entity, *others], device=self.rows.device)
        units = self.rows[ids] / self.norms[ids].unsqueeze(1)
        cosines: list[float] = (units[1:] @ units[0]).tolist()
        return cosines


def check_finite(values: Tensor) -> None:
    """Raise `Diverged` unless all scores are finite."""
    if not values.numel():
        return
    low, high = values.aminmax()  # one pass; a NaN shows up in both
    if not (low.isfinite() and high.isfinite()):
        raise Diverged("a score is not finite: the model has diverged and has no answers")
