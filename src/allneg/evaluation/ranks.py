"""Scores → ranks: how many rivals are better than the answer, and how many are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import BadData, Diverged
from allneg.evaluation.protocol import Protocol
from allneg.graph.graph import Graph, Triples
from allneg.graph.known import KnownAnswers
from allneg.graph.questions import SIDES, Questions
from allneg.models import Model
from allneg.scoring.scores import scores
from allneg.scoring.tables import Tables

Counts = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Ranking:
    """Where every answer of a split landed. Column 0 asks for tails, column 1 for heads."""

    protocol: Protocol
    split: str
    triples: Triples  # int64 (n, 3): the ones asked about
    better: Counts  # int64 (n, 2): rivals with a higher score
    equal: Counts  # int64 (n, 2): rivals with the same score
    n_candidates: int  # entities that could be an answer
    dropped: int  # triples not asked about, by the protocol

    @property
    def ranks(self) -> npt.NDArray[np.float64]:
        """The rank of each answer by the protocol's rule for ties: (n, 2)."""
        ties = {
            "middle": self.equal,
            "middle-up": (self.equal + 1) // 2 * 2,
            "last": 2 * self.equal,
        }
        return np.asarray(1.0 + self.better + ties[self.protocol.ties] / 2, dtype=np.float64)


def known_for(protocol: Protocol, graph: Graph, split: str) -> KnownAnswers:
    """The answers that are no rivals when `split` is ranked."""
    splits = [graph.split(name) for name in protocol.filter_splits(split)]
    return KnownAnswers.of(splits, graph.n_entities, graph.n_relations)


@torch.no_grad()
def rank(
    model: Model, tables: Tables, graph: Graph, split: str, protocol: Protocol, block: int
) -> Ranking:
    """Rank a split from both sides, holding at most about `block` scores at once."""
    known = known_for(protocol, graph, split).to(tables.device)
    triples = graph.split(split)
    if protocol.unseen == "dropped":
        triples = triples[graph.seen[triples[:, 0]] & graph.seen[triples[:, 2]]]
    dropped = len(graph.split(split)) - len(triples)
    if not len(triples):
        raise BadData(f"{graph.name}: {split} has no triples to rank")
    out = None if protocol.unseen == "kept" else torch.from_numpy(~graph.seen).to(tables.device)
    asked = torch.from_numpy(triples).to(tables.device)
    size = max(1, block // graph.n_entities)
    finite = torch.ones((), dtype=torch.bool, device=tables.device)
    found: list[Tensor] = []
    for side in SIDES:
        for some in asked.split(size):
            questions = Questions.of(some, side)
            values = scores(model, tables, questions).float()
            finite &= values.isfinite().all()
            if out is not None:
                values[:, out] = -torch.inf
            found.append(places(values, questions, known, protocol))
    if not finite:
        raise Diverged("a score is not finite: the model has diverged, so nothing is ranked")
    better, equal = torch.cat(found).view(2, len(triples), 2).permute(2, 1, 0).cpu().numpy()
    candidates = graph.n_entities if out is None else int(graph.seen.sum())
    return Ranking(protocol, split, triples, better, equal, candidates, dropped)


def places(values: Tensor, questions: Questions, known: KnownAnswers, rule: Protocol) -> Tensor:
    """How many rivals are better than each answer, and how many equal: (B, N) -> (B, 2).

    `values` is used up: known answers, and the answer itself, are struck out of it.
    """
    answer = values.gather(1, questions.answer.unsqueeze(1))
    values[known.pairs(questions)] = -torch.inf
    values.scatter_(1, questions.answer.unsqueeze(1), -torch.inf)
    if not rule.relative and not rule.absolute:
        better, equal = values > answer, values == answer
    else:
        equal = (values - answer).abs() <= rule.absolute + rule.relative * answer.abs()
        better = (values > answer) & ~equal
    return torch.stack([better.sum(1), equal.sum(1)], dim=1)
