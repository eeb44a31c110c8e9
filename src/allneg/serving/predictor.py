"""Names in, names out: what a trained run answers to a question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from allneg.errors import BadRecipe, Diverged
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.known import KnownAnswers
from allneg.graph.questions import Questions, Side
from allneg.hardware import find_device
from allneg.models import Model
from allneg.run import Run
from allneg.scoring import Tables, scores

_BLOCK = 1 << 26  # scores held at once when many questions are asked


@dataclass(frozen=True)
class Prediction:
    """One answer to a question."""

    entity: str
    score: float
    probability: float  # the softmax of the scores over all entities
    known: str | None  # the split that holds the fact; None for a new one

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Predictor:
    """A model, its weights and the graph they were trained on."""

    model: Model
    tables: Tables
    graph: Graph
    known: dict[str, KnownAnswers]  # of each split

    @classmethod
    def load(cls, folder: Path | str, device: str = "auto") -> Predictor:
        """The best weights of a run, ready to answer."""
        run, place = Run.open(folder), find_device(device)
        graph = run.graph
        known = {
            split: KnownAnswers.of([graph.split(split)], graph.n_entities, graph.n_relations)
            for split in SPLITS
            if len(graph.split(split))
        }
        tables = run.tables().to(place).requires_grad_(False)
        return cls(run.model, tables, graph, {name: each.to(place) for name, each in known.items()})

    def tails(self, head: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (head, relation, ?), best first; `new` leaves out known facts."""
        return self.answer([(head, relation)], "tail", k, new)[0]

    def heads(self, tail: str, relation: str, k: int = 10, new: bool = False) -> list[Prediction]:
        """The `k` best answers to (?, relation, tail), best first; `new` leaves out known facts."""
        return self.answer([(tail, relation)], "head", k, new)[0]

    def answer(
        self, asked: Sequence[tuple[str, str]], side: Side, k: int = 10, new: bool = False
    ) -> list[list[Prediction]]:
        """The best answers to many questions (entity, relation) that ask for one side."""
        if k < 1:
            raise BadRecipe(f"{k} answers were asked for; ask for at least 1")
        vocabulary = self.graph.vocabulary
        entity = [vocabulary.entity(name) for name, _ in asked]
        relation = [vocabulary.relation(name) for _, name in asked]
        size = max(1, _BLOCK // self.graph.n_entities)
        found: list[list[Prediction]] = []
        for first in range(0, len(asked), size):
            some = slice(first, first + size)
            known = torch.tensor(entity[some], device=self.tables.device)
            by = torch.tensor(relation[some], device=self.tables.device)
            # What we ask for is not known: the entity stands in for its own answer.
            found += self._best(Questions.asking(side, known, by, known), k, new)
        return found

    @torch.no_grad()
    def _best(self, questions: Questions, k: int, new: bool) -> list[list[Prediction]]:
        values = scores(self.model, self.tables, questions).float()
        if not values.isfinite().all():
            raise Diverged("a score is not finite: the model has diverged, so it has no answers")
        total = values.logsumexp(1, keepdim=True)
        if new:
            for known in self.known.values():
                values[known.pairs(questions)] = -torch.inf
        best, ids = values.topk(min(k, values.shape[1]), dim=1)
        splits = self._splits(questions, ids)
        chance = (best - total).exp()
        names = self.graph.vocabulary.entities
        return [
            [
                Prediction(names[e], s, p, split)
                for e, s, p, split in zip(*columns, strict=True)
                if s != -torch.inf  # nothing is left when all are known
            ]
            for columns in zip(ids.tolist(), best.tolist(), chance.tolist(), splits, strict=True)
        ]

    def _splits(self, questions: Questions, candidates: Tensor) -> list[list[str | None]]:
        """The split that knows each candidate as an answer, or None: (B, K)."""
        found: list[list[str | None]] = [[None] * candidates.shape[1] for _ in candidates]
        for split in reversed(list(self.known)):
            for b, k in self.known[split].contains(questions, candidates).nonzero().tolist():
                found[b][k] = split
        return found


def load(folder: Path | str, device: str = "auto") -> Predictor:
    """A trained run, ready to answer questions."""
    return Predictor.load(folder, device)
