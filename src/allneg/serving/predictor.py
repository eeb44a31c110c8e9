"""Names in, names out: what a trained run answers to a query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from allneg.errors import Diverged, RecipeError, counted, printable
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import SIDES, Queries, Side
from allneg.hardware import find_device, trouble_named
from allneg.kernels.packed import packed
from allneg.models import Model
from allneg.runs import Run
from allneg.scoring import Tables
from allneg.scoring.scores import query_vectors, scores

_BLOCK = 1 << 26  # scores held at once when many queries are asked


@dataclass(frozen=True)
class Prediction:
    """One answer to a query."""

    entity: str
    score: float
    probability: float  # the softmax of the scores over all entities
    known: str | None  # the split that holds the fact; None for a new one

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Answers:
    """The best answers to one query."""

    predictions: list[Prediction]
    rest: float  # log of the summed exp(score) of the entities that train does not know as answers


@dataclass(frozen=True)
class RelationPrediction:
    """One relation that may join two entities."""

    relation: str
    score: float
    probability: float  # the softmax of the scores over all relations
    known: str | None  # the split that holds the fact; None for a new one


@dataclass(frozen=True)
class Predictor:
    """A model, its weights and the graph they were trained on."""

    model: Model
    tables: Tables
    graph: Graph
    known: dict[str, KnownAnswers]  # of each split
    packed: Tensor | None = None  # the entity rows once more, laid out for a few queries

    def __repr__(self) -> str:
        graph = self.graph
        size = f"{counted(graph.n_entities, 'entity')}, {counted(graph.n_relations, 'relation')}"
        return f"<Predictor {type(self.model).__name__} on {self.graph.name}: {size}>"

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Predictor:
        """The best weights of a run, ready to answer."""
        run, place = Run.open(folder), find_device(device)
        graph = run.graph
        sizes = graph.n_entities, graph.n_relations
        with trouble_named(place):
            known = {
                split: KnownAnswers.of([graph.split(split)], *sizes, place)
                for split in SPLITS
                if len(graph.split(split))
            }
            tables = run.tables().to(place).requires_grad_(False)
            return cls(run.model, tables, graph, known).quick()

    def quick(self) -> Predictor:
        """The same with its entity rows packed, where that helps."""
        table = packed(self.tables.entities) if self.model.kernel.name == "dot" else None
        return replace(self, packed=table)

    def tails(self, head: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (head, relation, ?), best first; `new` leaves out known facts."""
        return self.answer([(head, relation)], "tail", k, new)[0]

    def heads(self, tail: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (?, relation, tail), best first; `new` leaves out known facts."""
        return self.answer([(tail, relation)], "head", k, new)[0]

    def answer(
        self, asked: Sequence[tuple[str, str]], side: Side, k: int = 10, new: bool = False
    ) -> list[list[Prediction]]:
        """The best answers to many queries (entity, relation) that ask for one side."""
        found = self.ask([(side, entity, relation) for entity, relation in asked], k, new)
        return [each.predictions for each in found]

    def ask(
        self, asked: Sequence[tuple[Side, str, str]], k: int = 10, new: bool = False
    ) -> list[Answers]:
        """The best answers to many queries (side asked for, known entity, relation)."""
        _check_count(k)
        vocabulary = self.graph.vocabulary
        if odd := next((each[0] for each in asked if each[0] not in SIDES), None):
            raise RecipeError(f"{printable(odd)} is no side to ask for; ask for tail or head")
        ids = [
            (SIDES.index(side), vocabulary.entity(entity), vocabulary.relation(relation))
            for side, entity, relation in asked
        ]
        size = max(1, _BLOCK // self.graph.n_entities)
        found: list[Answers] = []
        for first in range(0, len(ids), size):
            block = torch.tensor(ids[first : first + size], device=self.tables.device)
            side, known, by = block.unbind(1)
            # What we ask for is not known: the entity stands in for its own answer.
            found += self._best(Queries(side, known, by, known), k, new)
        return found

    @torch.no_grad()
    def relations(
        self, head: str, tail: str, k: int = 10, new: bool = False
    ) -> list[RelationPrediction]:
        """The `k` relations that best join two entities, by their scores as tail queries."""
        _check_count(k)
        vocabulary, device = self.graph.vocabulary, self.tables.device
        by = torch.arange(self.graph.n_relations, device=device)
        start, end = (
            torch.full_like(by, vocabulary.entity(head)),
            torch.full_like(by, vocabulary.entity(tail)),
        )
        queries = Queries.for_side("tail", start, by, end)
        rows = self.tables.entity_rows(end[:1])
        query = query_vectors(self.model, self.tables, queries)
        values = self.model.kernel.scores(query, rows)[:, 0].float()
        _check_finite(values)
        splits = [split for (split,) in self._splits(queries, end.unsqueeze(1))]
        chance, order = values.softmax(0).tolist(), values.argsort(descending=True, stable=True)
        found = [
            RelationPrediction(vocabulary.relations[r], float(values[r]), chance[r], splits[r])
            for r in order.tolist()
        ]
        return [each for each in found if each.known is None or not new][:k]

    @torch.no_grad()
    def _best(self, queries: Queries, k: int, new: bool) -> list[Answers]:
        values = self._scores(queries)
        _check_finite(values)
        total = values.logsumexp(1, keepdim=True)
        rest = values.clone()
        if "train" in self.known:
            rest[self.known["train"].pairs(queries)] = -torch.inf
        if new:
            for known in self.known.values():
                values[known.pairs(queries)] = -torch.inf
        best, ids = values.topk(min(k, values.shape[1]), dim=1)
        splits = self._splits(queries, ids)
        chance = (best - total).exp()
        names = self.graph.vocabulary.entities
        found = []
        for *columns, others in zip(
            ids.tolist(), best.tolist(), chance.tolist(), splits, rest.logsumexp(1).tolist(),
            strict=True,
        ):  # fmt: skip
            predictions = [
                Prediction(names[e], s, p, split)
                for e, s, p, split in zip(*columns, strict=True)
                if s != -torch.inf  # nothing is left when all are known
            ]
            found.append(Answers(predictions, others))
        return found

    def _scores(self, queries: Queries) -> Tensor:
        """The score of every entity: float32 (B, N), which the caller may write to."""
        return scores(self.model, self.tables, queries, self.packed).float()

    def _splits(self, queries: Queries, candidates: Tensor) -> list[list[str | None]]:
        """The split that knows each candidate as an answer, or None: (B, K)."""
        found: list[list[str | None]] = [[None] * candidates.shape[1] for _ in candidates]
        for split in reversed(list(self.known)):
            for b, k in self.known[split].contains(queries, candidates).nonzero().tolist():
                found[b][k] = split
        return found


def _check_count(k: int) -> None:
    if k < 1:
        raise RecipeError(f"{k} answers were asked for; ask for at least 1")


def _check_finite(values: Tensor) -> None:
    low, high = values.aminmax()  # one pass; not a number stays one
    if not (low.isfinite() and high.isfinite()):
        raise Diverged("a score is not finite: the model has diverged, so it has no answers")


def load(folder: Path | str, device: str = "auto") -> Predictor:
    """A trained run, ready to answer queries."""
    return Predictor.load(folder, device)
