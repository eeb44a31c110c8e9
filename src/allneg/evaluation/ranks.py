"""Scores → ranks: how many candidates score higher than the answer, and how many the same.

A protocol decides which answers are filtered, how ties count, and which entities are candidates.
"""

from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import DataError, Diverged, OutOfMemoryError, RecipeError, close_names
from allneg.evaluation.counting import AT_ONCE, count_without_scores
from allneg.evaluation.within import Within
from allneg.graph.graph import SPLITS, Graph, Triples
from allneg.graph.queries import SIDES, KnownAnswers, Queries
from allneg.hardware import is_out_of_memory
from allneg.kernels.attention import can_count
from allneg.kernels.fused import count_ranks, mask_out
from allneg.models import Model
from allneg.recipe import Evaluation
from allneg.scoring.distributed import Shard
from allneg.scoring.scores import query_vectors, scores
from allneg.scoring.tables import Tables

Counts = npt.NDArray[np.int64]
# On a CPU, this many scores at once stay in the cache; products need this many queries.
_CACHED_SCORES, _CPU_QUERIES = 1 << 22, 256
_MANY_SCORES = 1 << 32  # of a split; a GPU that stores fewer takes less time than a compilation


@dataclass(frozen=True)
class Protocol:
    """How answers are ranked. Every report names it."""

    name: str
    ties: Literal["middle", "middle-up", "last"]  # the rank of an answer among equal scores
    relative: float = 0.0  # scores this close to the answer's, relative to it, count as equal
    absolute: float = 0.0  # likewise, in absolute terms
    filter: Literal["all", "seen"] = "all"  # of valid: by all splits; seen: not by test
    unseen: Literal["kept", "dropped"] = "kept"  # queries about entities that are not in train

    def filter_splits(self, split: str) -> tuple[str, ...]:
        """The splits whose answers are filtered out when `split` is ranked."""
        return SPLITS if split == "test" or self.filter == "all" else ("train", "valid")

    def to_json(self, split: str) -> dict[str, Any]:
        splits = {"split": split, "filter": list(self.filter_splits(split))}
        words = {"valid_filter": self.filter, "in_words": self.in_words(split)}
        return {**asdict(self), **splits, **words}

    def in_words(self, split: str) -> str:
        ties = {
            "middle": "ties share the middle place",
            "middle-up": "ties share the middle place, rounded up, with a tolerance",
            "last": "ties count against the answer",
        }[self.ties]
        splits = " + ".join(self.filter_splits(split))
        return f"filtered by {splits}; {ties}; unseen entities {self.unseen}; both sides"


PROTOCOLS = {
    "allneg": Protocol("allneg", "middle"),
    "kbc": Protocol("kbc", "last"),
    "libkge": Protocol("libkge", "middle-up", relative=1e-4, absolute=1e-5),
    # PyKEEN's vocabulary comes from train: unseen entities are neither queried nor candidates.
    "pykeen": Protocol("pykeen", "middle", filter="seen", unseen="dropped"),
}


def protocol(name: str) -> Protocol:
    if name not in PROTOCOLS:
        raise RecipeError(f"no protocol is called {name!r}{close_names(name, PROTOCOLS)}")
    return PROTOCOLS[name]


def selection_protocol(settings: Evaluation) -> Protocol:
    """The protocol by which training ranks valid and reports."""
    return replace(PROTOCOLS["allneg"], filter=settings.filter)


@dataclass(frozen=True)
class Ranking:
    """The ranks of a split's answers: column 0 to tail queries, column 1 to head queries."""

    protocol: Protocol
    split: str
    triples: Triples  # int64 (n, 3): the ranked ones
    better: Counts  # int64 (n, 2): candidates with a higher score
    equal: Counts  # int64 (n, 2): candidates with the same score
    n_candidates: int
    dropped: int  # triples that the protocol does not rank

    @property
    def ranks(self) -> npt.NDArray[np.float64]:
        """The rank of each answer by the protocol's rule for ties: (n, 2)."""
        equal = self.equal
        ties = {"middle": equal / 2, "middle-up": (equal + 1) // 2, "last": equal}
        return np.asarray(1.0 + self.better + ties[self.protocol.ties], dtype=np.float64)


def to_rank(graph: Graph, split: str, protocol: Protocol) -> tuple[Triples, npt.NDArray[np.bool_]]:
    """The triples of a split that a protocol ranks, and which entities are candidates: (N,)."""
    triples, candidates = graph.split(split), np.ones(graph.n_entities, dtype=np.bool_)
    if protocol.unseen == "dropped":
        candidates, triples = graph.seen, triples[graph.is_seen(triples)]
    if not len(triples):
        raise DataError(f"{graph.name}: {split} has no triples to rank")
    return triples, candidates


@torch.no_grad()
def rank(
    model: Model,
    tables: Tables,
    graph: Graph,
    split: str,
    protocol: Protocol,
    block: int,
    within: Within | None = None,
) -> Ranking:
    """Rank a split from both sides, with `block` scores in memory, or fewer if memory runs out.

    With `within`, whole tables are needed, and an impossible answer shares the middle of the places
    of all impossible ones. It is another protocol, named after the restriction.
    """
    shard = tables.shard
    known = KnownAnswers.of_splits(graph, protocol.filter_splits(split), tables.device)
    triples, candidates = to_rank(graph, split, protocol)
    excluded = torch.from_numpy(~candidates[shard.start : shard.stop]).to(tables.device)
    rows = tables.entities.detach()[: len(shard)]
    ids = torch.from_numpy(triples).to(tables.device)
    n_rows = shard.rows.largest_part(shard.total)
    by_counting = within is None and counts_without_scores(model, rows, protocol, len(ids) * n_rows)
    largest = torch.stack(rows.aminmax()).abs().amax() if by_counting else torch.zeros(())

    def count_block(queries: Queries) -> tuple[Tensor, Tensor]:
        """As `rank_block`, without scores in memory; too large vectors count as not finite."""
        query = query_vectors(model, tables, queries)
        bound = query.abs().amax() * largest * rows.shape[1]
        return count_without_scores(query, rows, queries, known, shard), bound.isfinite()

    def rank_block(queries: Queries) -> tuple[Tensor, Tensor]:
        """The counts of some queries, and whether all scores are finite; frees the scores."""
        values = scores(model, tables, queries).float()
        low, high = values.amin(1), values.amax(1)  # pass NaN on; aminmax is slow on a CPU
        if protocol.unseen == "dropped":
            values[:, excluded] = -torch.inf
        if within is not None:
            # Above the known answers, which are -inf.
            values.masked_fill_(within.outside(queries), torch.finfo(values.dtype).min)
        found = count_candidates(values, queries, known, protocol, shard)
        return found, (low.isfinite() & high.isfinite()).all()

    size = min(max(1, block // n_rows), len(ids))
    if by_counting:
        size = AT_ONCE
    elif tables.device.type == "cpu":
        size = min(size, max(_CPU_QUERIES, _CACHED_SCORES // n_rows))
    not_finite = torch.zeros((), dtype=torch.int64, device=tables.device)
    found = torch.zeros(len(SIDES), len(ids), 2, dtype=torch.int64, device=tables.device)
    for column, side in enumerate(SIDES):
        queries, order = Queries.of(ids, side).distinct()
        row, stop = shard.batch.part(len(queries))
        while row < stop:
            part = slice(row, min(row + size, stop))
            try:
                counts, finite = (count_block if by_counting else rank_block)(queries[part])
            except (RuntimeError, MemoryError) as error:
                size = _smaller(size, error, shard)
                continue
            found[column, order[queries.answers_of(part)]] = counts
            not_finite += ~finite
            row = part.stop
    if shard.world.everyone.sum(not_finite):
        raise Diverged("a score is not finite: the model has diverged, so nothing is ranked")
    # Each process has counted the candidates of its rows, for its part of the queries.
    better, equal = shard.world.everyone.sum(found).permute(2, 1, 0).cpu().numpy()
    dropped = len(graph.split(split)) - len(triples)
    n_candidates = int(candidates.sum())
    if within is not None:
        protocol = replace(protocol, name=f"within {within.name}")
        n_candidates = within.largest(graph)
    return Ranking(protocol, split, triples, better, equal, n_candidates, dropped)


def counts_without_scores(model: Model, rows: Tensor, protocol: Protocol, n_scores: int) -> bool:
    """Whether ranks are counted while scores are computed, and no score is stored."""
    plain = protocol.unseen == "kept" and not (protocol.absolute or protocol.relative)
    many = n_scores >= _MANY_SCORES
    return plain and many and model.kernel.name == "dot" and can_count(rows)


def _smaller(size: int, error: Exception, shard: Shard) -> int:
    """How many queries to rank at once after memory ran out for `size`."""
    if not is_out_of_memory(error):
        raise error
    # With several processes, the others wait for this one's part of the same queries.
    if shard.world.size > 1:
        advice = f"ranking {size} queries at a time; lower evaluation.block"
    elif size == 1:
        advice = "ranking one query at a time; free some memory, or use --device cpu"
    else:
        return size // 2
    raise OutOfMemoryError(f"out of memory while {advice}") from None


def count_candidates(
    values: Tensor, queries: Queries, known: KnownAnswers, protocol: Protocol, shard: Shard
) -> Tensor:
    """How many candidates score higher than each answer, and how many the same: (B, n) -> (B, 2).

    `values` is overwritten: known answers and the answer itself are masked out. Only the rows of
    the shard are counted; the answer's score comes from the process that holds its row. With
    `queries.group`, all answers must be known: (B, n) -> (A, 2).
    """
    query, filtered = shard.held_pairs(known.pairs(queries))
    column, group = shard.columns(queries.answer), queries.group
    if group is None:
        answer = mask_out(values, column, values.shape[1])
    else:
        answer = torch.where(column >= 0, values[group, column.clamp(min=0)], -torch.inf)
    answer = shard.rows.max(answer)
    values[query, filtered] = -torch.inf
    tolerant = protocol.absolute or protocol.relative
    slack = protocol.absolute + protocol.relative * answer.abs() if tolerant else None
    return count_ranks(values, answer, slack, group)
