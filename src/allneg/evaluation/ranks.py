"""Scores → ranks: how many rivals are better than the answer, and how many are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import BadData, Diverged, OutOfResources
from allneg.evaluation.protocol import Protocol
from allneg.graph.graph import Graph, Triples
from allneg.graph.known import KnownAnswers
from allneg.graph.questions import SIDES, Questions
from allneg.hardware import is_out_of_memory
from allneg.kernels.answers import strike
from allneg.kernels.counts import counts
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


def known_for(protocol: Protocol, graph: Graph, split: str, device: torch.device) -> KnownAnswers:
    """The answers that are no rivals when `split` is ranked."""
    splits = [graph.split(name) for name in protocol.filter_splits(split)]
    return KnownAnswers.of(splits, graph.n_entities, graph.n_relations, device)


@torch.no_grad()
def rank(
    model: Model, tables: Tables, graph: Graph, split: str, protocol: Protocol, block: int
) -> Ranking:
    """Rank a split from both sides, holding at most about `block` scores at once.

    Where memory does not suffice for so many, half as many are held, and so on.
    """
    known = known_for(protocol, graph, split, tables.device)
    triples = graph.split(split)
    if protocol.unseen == "dropped":
        triples = triples[graph.seen[triples[:, 0]] & graph.seen[triples[:, 2]]]
    dropped = len(graph.split(split)) - len(triples)
    if not len(triples):
        raise BadData(f"{graph.name}: {split} has no triples to rank")
    out = None if protocol.unseen == "kept" else torch.from_numpy(~graph.seen).to(tables.device)
    asked = torch.from_numpy(triples).to(tables.device)
    size = min(max(1, block // graph.n_entities), len(asked))
    finite = torch.ones((), dtype=torch.bool, device=tables.device)
    found: list[Tensor] = []
    for side in SIDES:
        done = 0
        while done < len(asked):
            questions = Questions.of(asked[done : done + size], side)
            try:
                some, all_finite = _ranked(model, tables, questions, known, protocol, out)
            except (RuntimeError, MemoryError) as error:
                size = _fewer(size, error)
                continue
            finite &= all_finite
            found.append(some)
            done += len(questions)
    if not finite:
        raise Diverged("a score is not finite: the model has diverged, so nothing is ranked")
    better, equal = torch.cat(found).view(2, len(triples), 2).permute(2, 1, 0).cpu().numpy()
    candidates = graph.n_entities if out is None else int(graph.seen.sum())
    return Ranking(protocol, split, triples, better, equal, candidates, dropped)


def _ranked(
    model: Model,
    tables: Tables,
    questions: Questions,
    known: KnownAnswers,
    protocol: Protocol,
    out: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The places of some questions' answers, and whether all scores are finite.

    A function of its own, so that its scores are gone before the next ones are made.
    """
    values = scores(model, tables, questions).float()
    low, high = values.aminmax(dim=1)  # NaN passes through; without a dim, a copy would be made
    if out is not None:
        values[:, out] = -torch.inf
    return places(values, questions, known, protocol), (low.isfinite() & high.isfinite()).all()


def _fewer(size: int, error: Exception) -> int:
    """How many questions to rank at once after so many were too many."""
    if not is_out_of_memory(error):
        raise error
    if size == 1:
        raise OutOfResources(
            "out of memory while ranking one question at a time; free some, or use --device cpu"
        ) from None
    return size // 2


def places(values: Tensor, questions: Questions, known: KnownAnswers, rule: Protocol) -> Tensor:
    """How many rivals are better than each answer, and how many equal: (B, N) -> (B, 2).

    `values` is used up: known answers, and the answer itself, are struck out of it.
    """
    answer = strike(values, questions.answer, values.shape[1])
    values[known.pairs(questions)] = -torch.inf
    slack = rule.absolute + rule.relative * answer.abs() if rule.absolute or rule.relative else None
    return counts(values, answer, slack)
