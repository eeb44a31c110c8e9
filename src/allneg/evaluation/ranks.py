"""Scores → ranks: how many rivals are better than the answer, and how many are equal."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import DataError, Diverged, OutOfMemoryError
from allneg.evaluation.protocol import Protocol
from allneg.graph.graph import Graph, Triples
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import SIDES, Queries
from allneg.hardware import is_out_of_memory
from allneg.kernels.fused import count_ranks, mask_out
from allneg.models import Model
from allneg.scoring.distributed import Shard
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
        known_relation = np.isin(triples[:, 1], graph.train[:, 1])
        triples = triples[graph.seen[triples[:, 0]] & graph.seen[triples[:, 2]] & known_relation]
    dropped = len(graph.split(split)) - len(triples)
    if not len(triples):
        raise DataError(f"{graph.name}: {split} has no triples to rank")
    out = None if protocol.unseen == "kept" else torch.from_numpy(~graph.seen).to(tables.device)
    asked = torch.from_numpy(triples).to(tables.device)
    shard = tables.shard
    size = min(max(1, block // shard.rows.largest_part(shard.total)), len(asked))
    odd = torch.zeros((), dtype=torch.int64, device=tables.device)
    found = torch.zeros(len(SIDES), len(asked), 2, dtype=torch.int64, device=tables.device)
    start, stop = shard.batch.part(len(asked))
    for place, side in enumerate(SIDES):
        done = start
        while done < stop:
            queries = Queries.of(asked[done : min(done + size, stop)], side)
            try:
                some, all_finite = _ranked(model, tables, queries, known, protocol, out)
            except (RuntimeError, MemoryError) as error:
                size = _fewer(size, error, shard)
                continue
            odd += ~all_finite
            found[place, done : done + len(queries)] = some
            done += len(queries)
    if shard.world.everyone.sum(odd):
        raise Diverged("a score is not finite: the model has diverged, so nothing is ranked")
    # Each process has counted the rivals it holds, for the queries that are its to ask.
    better, equal = shard.world.everyone.sum(found).permute(2, 1, 0).cpu().numpy()
    candidates = graph.n_entities if out is None else int(graph.seen.sum())
    return Ranking(protocol, split, triples, better, equal, candidates, dropped)


def _ranked(
    model: Model,
    tables: Tables,
    queries: Queries,
    known: KnownAnswers,
    protocol: Protocol,
    out: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The places of some questions' answers, and whether all scores are finite.

    A function of its own, so that its scores are gone before the next ones are made.
    """
    values = scores(model, tables, queries).float()
    low, high = values.aminmax(dim=1)  # NaN passes through; without a dim, a copy would be made
    if out is not None:
        values[:, out[tables.shard.start : tables.shard.stop]] = -torch.inf
    found = places(values, queries, known, protocol, tables.shard)
    return found, (low.isfinite() & high.isfinite()).all()


def _fewer(size: int, error: Exception, shard: Shard) -> int:
    """How many queries to rank at once after so many were too many."""
    if not is_out_of_memory(error):
        raise error
    if shard.world.size > 1:
        # The others wait for this process's part of as many queries as they have.
        raise OutOfMemoryError(
            f"out of memory while ranking {size} queries at a time; lower evaluation.block"
        ) from None
    if size == 1:
        raise OutOfMemoryError(
            "out of memory while ranking one query at a time; free some, or use --device cpu"
        ) from None
    return size // 2


def places(
    values: Tensor,
    queries: Queries,
    known: KnownAnswers,
    rule: Protocol,
    shard: Shard | None = None,
) -> Tensor:
    """How many rivals are better than each answer, and how many equal: (B, n) -> (B, 2).

    `values` is used up: known answers, and the answer itself, are struck out of it. With a
    shard, its rows alone are counted; the answer's score comes from the process that holds it.
    """
    query, rival = known.pairs(queries)
    place = queries.answer
    if shard is not None and shard.rows.size > 1:
        place = torch.where(shard.holds(place), place - shard.start, -1)
        here = shard.holds(rival)
        query, rival = query[here], rival[here] - shard.start
    answer = mask_out(values, place, values.shape[1])
    if shard is not None:
        answer = shard.rows.max(answer)
    values[query, rival] = -torch.inf
    slack = rule.absolute + rule.relative * answer.abs() if rule.absolute or rule.relative else None
    return count_ranks(values, answer, slack)
