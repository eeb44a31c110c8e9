"""Ranks of dot products that are counted while scores are computed: no score is stored.

All rows are counted; those of known answers are then subtracted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.graph.queries import KnownAnswers, Queries
from allneg.kernels.attention import count_better, pair_scores
from allneg.scoring.distributed import Shard

AT_ONCE = 1 << 13  # queries; the table is read once for each such block


def count_without_scores(
    query: Tensor, rows: Tensor, queries: Queries, known: KnownAnswers, shard: Shard
) -> Tensor:
    """As `count_candidates` for grouped queries, whose vectors are `query`: (B, W) -> (A, 2).

    `rows` (n, W) are those of the shard. All answers must be known, and all scores finite.
    """
    group, column = queries.group, shard.columns(queries.answer)
    assert group is not None
    of_query, filtered = shard.held_pairs(known.pairs(queries))
    query = query.to(rows.dtype).contiguous()
    pairs = torch.cat([group, of_query]), torch.cat([column, filtered])
    scores = pair_scores(query, rows, pairs)
    answer = shard.rows.max(scores[: len(group)].clone())
    counts = count_better(query, rows, answer, group)
    return counts - _count_known(answer, group, scores[len(group) :], of_query)


def _count_known(answer: Tensor, group: Tensor, scores: Tensor, of_query: Tensor) -> Tensor:
    """Known answers that score higher than each answer, and those that score the same: (A, 2)."""
    key, own = _sortable(of_query, scores).sort().values, _sortable(group, answer)
    low, high = (torch.searchsorted(key, own, right=right) for right in (False, True))
    end = torch.searchsorted(key, (group + 1) << 32)  # every score is above this
    return torch.stack([end - high, high - low], 1)


def _sortable(query: Tensor, score: Tensor) -> Tensor:
    """Integers in the order of queries, then of float32 scores: int64."""
    bits = (score + 0.0).view(torch.int32).long()  # -0 becomes 0
    return (query << 32) + torch.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + (1 << 31)
