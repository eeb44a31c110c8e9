"""Names in, names out: the answers of a trained run to queries."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from allneg.errors import Diverged, UsageError, counted, printable
from allneg.evaluation.calibration import Calibration
from allneg.evaluation.within import Within
from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side
from allneg.hardware import device_errors, find_device
from allneg.kernels.packed import packed
from allneg.models import Model
from allneg.runs import Run
from allneg.scoring import Tables
from allneg.scoring.scores import query_vectors, scores

if TYPE_CHECKING:
    from allneg.predict.ask import Answer
    from allneg.predict.classify import Classification
    from allneg.predict.complete import NewFact

_MAX_SCORES = 1 << 26  # in memory at once


@dataclass(frozen=True)
class Prediction:
    """One answer to a query."""

    entity: str
    score: float
    probability: float  # the softmax of the scores over all entities
    known: str | None  # the split that holds the fact; None for a new one
    calibrated: float | None = None  # how often such an answer is right on valid

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Answers:
    """The best answers to one query."""

    predictions: list[Prediction]
    logsumexp: float  # of the scores of all entities that are no answers in train


@dataclass(frozen=True)
class RelationPrediction:
    """One relation that may hold between two entities."""

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
    known: dict[str, KnownAnswers]  # by split
    packed: Tensor | None = None  # a copy of the entity rows in the layout that CPUs prefer
    stored: Calibration | None = None  # with the run

    def __repr__(self) -> str:
        graph = self.graph
        size = f"{counted(graph.n_entities, 'entity')}, {counted(graph.n_relations, 'relation')}"
        return f"<Predictor {type(self.model).__name__} on {graph.name}: {size}>"

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Predictor:
        """The best weights of a run, ready to answer queries."""
        run, torch_device = Run.open(folder), find_device(device)
        graph = run.graph
        parts = {split: graph.split(split) for split in SPLITS if len(graph.split(split))}
        with device_errors(torch_device):
            known = {
                split: KnownAnswers.of([part], graph.n_entities, graph.n_relations, torch_device)
                for split, part in parts.items()
            }
            tables = run.tables().to(torch_device).requires_grad_(False)
            return cls(run.model, tables, graph, known, stored=run.calibration).quick()

    @cached_property
    def calibration(self) -> Calibration | None:
        """The run's, or learned now in the same way if it has none; None without valid."""
        return self.stored or Calibration.fit(self.scores, self.graph, self.known)

    def quick(self) -> Predictor:
        """The same predictor with packed entity rows, where the kernel and the CPU allow it."""
        table = packed(self.tables.entities) if self.model.kernel.name == "dot" else None
        return replace(self, packed=table)

    def tails(self, head: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (head, relation, ?), best first; `new` leaves out known facts."""
        return self.answer([(head, relation)], "tail", k, new)[0]

    def heads(self, tail: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (?, relation, tail), best first; `new` leaves out known facts."""
        return self.answer([(tail, relation)], "head", k, new)[0]

    def answer(
        self, queries: Sequence[tuple[str, str]], side: Side, k: int = 10, new: bool = False
    ) -> list[list[Prediction]]:
        """The best answers to many queries (entity, relation) for the same side."""
        found = self.answers([(side, entity, relation) for entity, relation in queries], k, new)
        return [answers.predictions for answers in found]

    def answers(
        self,
        queries: Sequence[tuple[Side, str, str]],
        k: int = 10,
        new: bool = False,
        within: Within | None = None,
    ) -> list[Answers]:
        """The best answers to many queries (side of the answer, known entity, relation)."""
        _check_count(k)
        if wrong := next((side for side, _, _ in queries if side not in SIDES), None):
            raise UsageError(f"{printable(wrong)} is not a side; use 'tail' or 'head'")
        vocabulary = self.graph.vocabulary
        ids = [
            (SIDES.index(side), vocabulary.entity(entity), vocabulary.relation(relation))
            for side, entity, relation in queries
        ]
        size = max(1, _MAX_SCORES // self.graph.n_entities)
        found: list[Answers] = []
        for start in range(0, len(ids), size):
            block = torch.tensor(ids[start : start + size], device=self.tables.device)
            side, entity, relation = block.unbind(1)
            # The answer is unknown and not used: the entity fills its field.
            found += self._best(Queries(side, entity, relation, entity), k, new, within)
        return found

    @torch.no_grad()
    def relations(
        self, head: str, tail: str, k: int = 10, new: bool = False
    ) -> list[RelationPrediction]:
        """The `k` best relations between two entities, by their scores in tail queries."""
        _check_count(k)
        vocabulary = self.graph.vocabulary
        ids = torch.arange(self.graph.n_relations, device=self.tables.device)
        heads, tails = (torch.full_like(ids, vocabulary.entity(name)) for name in (head, tail))
        queries = Queries.for_side("tail", heads, ids, tails)
        query = query_vectors(self.model, self.tables, queries)
        values = self.model.kernel.scores(query, self.tables.entity_rows(tails[:1]))[:, 0].float()
        check_finite(values)
        splits = [split for (split,) in self._splits(queries, tails.unsqueeze(1))]
        probability = values.softmax(0).tolist()
        found = [
            RelationPrediction(vocabulary.relations[r], float(values[r]), probability[r], splits[r])
            for r in values.argsort(descending=True, stable=True).tolist()
        ]
        return [prediction for prediction in found if not (new and prediction.known)][:k]

    @torch.no_grad()
    def scores(self, queries: Queries) -> Tensor:
        """The score of every entity as the answer: float32 (B, N). The caller may overwrite it."""
        return scores(self.model, self.tables, queries, self.packed).float()

    @torch.no_grad()
    def _best(self, queries: Queries, k: int, new: bool, within: Within | None) -> list[Answers]:
        values = self.scores(queries)
        check_finite(values)
        total = values.logsumexp(1, keepdim=True)
        unknown = values.clone()
        if "train" in self.known:
            unknown[self.known["train"].pairs(queries)] = -torch.inf
        if new:
            for known in self.known.values():
                values[known.pairs(queries)] = -torch.inf
        if within is not None:
            values.masked_fill_(within.outside(queries), -torch.inf)
        best, ids = values.topk(min(k, values.shape[1]), dim=1)
        probability = (best - total).exp()
        names = self.graph.vocabulary.entities
        logsumexp = unknown.logsumexp(1)
        columns = (ids, best, probability, self._calibrated(queries, best, logsumexp), logsumexp)
        rows = zip(*(c.tolist() for c in columns), self._splits(queries, ids), strict=True)
        return [
            Answers(
                [
                    Prediction(names[e], score, p, split, None if math.isnan(rate) else rate)
                    for e, score, p, rate, split in zip(*of_query, splits, strict=True)
                    if score != -torch.inf  # left out by `new` or `within`
                ],
                total,
            )
            for *of_query, total, splits in rows
        ]

    def _calibrated(self, queries: Queries, best: Tensor, logsumexp: Tensor) -> Tensor:
        """The calibrated probability of each query's answers; NaN without a calibration: (B, K)."""
        rates = torch.full(best.shape, torch.nan, dtype=torch.float64)
        if self.calibration is not None:
            margins = (best - logsumexp.unsqueeze(1)).cpu().numpy()
            for number, side in enumerate(SIDES):
                rows = (queries.side == number).cpu()
                rates[rows] = torch.from_numpy(self.calibration(side, margins[rows.numpy()]))
        return rates

    def ask(self, question: str, k: int = 10, facts: bool = False, **how: Any) -> list[Answer]:
        """The `k` best answers to a question such as `?x : borders(France, ?y), speaks(?y, ?x)`.

        With `facts`, known facts are certain. `how` may give beam, norm and scores: docs/ask.md.
        """
        from allneg.predict.ask import Search
        from allneg.predict.question import Question

        search = Search(self, facts=tuple(self.known) if facts else (), **how)
        return search.answers(Question.parse(question, self.graph.vocabulary), k)

    def classify(
        self,
        facts: Sequence[tuple[str, str, str]],
        labels: Sequence[bool] | None = None,
        negatives: Sequence[tuple[str, str, str]] | None = None,
    ) -> Classification:
        """Scores, probabilities, ranks and verdicts of facts; see `allneg.predict.classify`."""
        from allneg.predict.classify import classify

        return classify(self, facts, labels, negatives)

    def complete(
        self,
        top: int = 10_000,
        min_probability: float = 0.0,
        relations: Sequence[str] | None = None,
        within: Within | None = None,
    ) -> list[NewFact]:
        """The most probable new facts of the whole graph; see `allneg.predict.complete`."""
        from allneg.predict.complete import Completion

        names = self.graph.vocabulary.relations if relations is None else relations
        ids = sorted({self.graph.vocabulary.relation(name) for name in names})
        search = Completion(self, ids, top, min_probability, within)
        search.run()
        return list(search.facts())

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


def _check_count(k: int) -> None:
    if k < 1:
        raise UsageError(f"the number of answers is {k}; use at least 1")


def check_finite(values: Tensor) -> None:
    """Raise `Diverged` unless all scores are finite."""
    if not values.numel():
        return
    low, high = values.aminmax()  # one pass; a NaN shows up in both
    if not (low.isfinite() and high.isfinite()):
        raise Diverged("a score is not finite: the model has diverged and has no answers")


load = Predictor.load
