"""The weights of an ensemble: per relation and side, by MRR on valid."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from allneg.errors import Diverged
from allneg.evaluation.curves import Numbers
from allneg.evaluation.ranks import Protocol, Ranking, count_candidates, to_rank
from allneg.graph.graph import Graph, even_sample
from allneg.graph.queries import SIDES, KnownAnswers, Queries
from allneg.models import Model
from allneg.scoring.scores import scores
from allneg.scoring.tables import Tables

Member = tuple[Model, Tables]

_STEPS = 10  # weights are multiples of 1/10, or of a larger share if there are many members
_MOST = 150  # weightings that are tried
# The mean over all relations counts as this many queries of each relation and side, so that a
# relation with few facts in valid gets the weights that are best for all.
PRIOR = 100
_SAMPLE = 500  # queries per side that give the spread of a member's scores


@dataclass(frozen=True)
class Weighting:
    """The chosen weights, which sum to 1 for each relation and side, besides that of counts."""

    overall: Numbers  # (M,): the best for all relations
    weights: Numbers  # (R, 2, M): by relation and side, as in SIDES
    member_mrrs: list[float]  # of each member alone, on valid
    overall_mrr: float  # of the ensemble with `overall` for all relations
    mrr: float  # of the ensemble, on the triples by which the weights are chosen
    cross_fitted_mrr: float  # likewise, with the weights of each half chosen by the other half


def weight_grid(n_members: int, counts: bool = False) -> Numbers:
    """Weights to try, (C, M), of sum 1: equal ones, single ones, and multiples of a share.

    With `counts`, there is one more member, which is used or not: its weight is 1 or 0.
    """
    if counts:
        grid = weight_grid(n_members)
        used = [np.pad(grid, ((0, 0), (0, 1)), constant_values=weight) for weight in (1, 0)]
        return np.vstack([*used, np.eye(n_members + 1)[-1]])
    steps = max(n for n in range(1, _STEPS + 1) if n == 1 or comb(n + n_members - 1, n) <= _MOST)
    # Stars and bars: the gaps between M - 1 bars in a row of stars are M numbers that sum to it.
    bars = np.array(list(combinations(range(steps + n_members - 1), n_members - 1)), dtype=int)
    ends = np.pad(bars.reshape(len(bars), n_members - 1), ((0, 0), (1, 1)), constant_values=-1)
    ends[:, -1] = steps + n_members - 1
    return np.vstack([np.full(n_members, 1 / n_members), (np.diff(ends) - 1) / steps])


@torch.no_grad()
def score_spread(model: Model, tables: Tables, graph: Graph) -> float:
    """The standard deviation of the scores of one query of valid, on average."""
    rows = graph.valid[even_sample(len(graph.valid), _SAMPLE)]
    triples = torch.from_numpy(rows).to(tables.device)
    blocks = (
        scores(model, tables, Queries.of(part, side))
        for side in SIDES
        for part in triples.split(64)
    )
    spread = float(torch.cat([values.float().std(1) for values in blocks]).mean())
    if not np.isfinite(spread):
        raise Diverged("a score is not finite: the model has diverged")
    return spread or 1.0  # the same score for every entity


@torch.no_grad()
def reciprocal_ranks(
    members: Sequence[Member],
    coefficients: Tensor,
    graph: Graph,
    protocol: Protocol,
    block: int,
) -> npt.NDArray[np.float32]:
    """1 / rank of each answer of valid under each weighting: (C, M) -> (C, n, 2).

    Every member scores each query once.
    """
    triples, _ = to_rank(graph, "valid", protocol)
    device, shard = members[0][1].device, members[0][1].shard
    known = KnownAnswers.of_splits(graph, protocol.filter_splits("valid"), device)
    size = max(1, block // (graph.n_entities * (len(members) + 1)))
    found = np.empty((len(coefficients), len(triples), len(SIDES)), dtype=np.float32)
    for column, side in enumerate(SIDES):
        for start in range(0, len(triples), size):
            part = triples[start : start + size]
            queries = Queries.of(torch.from_numpy(part).to(device), side)
            parts = torch.stack([scores(*member, queries).float() for member in members])
            for i, row in enumerate(coefficients.to(parts)):
                values = torch.tensordot(row, parts, 1)
                counts = count_candidates(values, queries, known, protocol, shard)
                better, equal = counts.T.cpu().numpy()
                ranking = Ranking(protocol, "valid", part, better, equal, graph.n_entities, 0)
                found[i, start : start + size, column] = 1 / ranking.ranks
    return found


def choose_weights(found: npt.NDArray[np.float32], grid: Numbers, graph: Graph) -> Weighting:
    """The best weighting of each relation and side, from `reciprocal_ranks` of a grid.

    A relation's choice is never worse on valid than the best for all relations, and that is never
    worse than any member alone: the grid has these weightings.
    """
    means = found.mean((1, 2), dtype=np.float64)
    relation = graph.valid[:, 1]
    overall, chosen = _choose(found, relation, graph.n_relations)
    single = [int((grid == row).all(1).argmax()) for row in np.eye(grid.shape[1])]
    return Weighting(
        grid[overall],
        grid[chosen],
        [float(means[i]) for i in single],
        float(means[overall]),
        float(_picked(found, relation, chosen).mean(dtype=np.float64)),
        _cross_fitted(found, relation, graph.n_relations),
    )


def _choose(
    found: npt.NDArray[np.float32], relation: npt.NDArray[Any], n_relations: int
) -> tuple[int, npt.NDArray[np.int64]]:
    """The best weighting for all relations, and for each relation and side: (R, 2)."""
    if not len(relation):
        return 0, np.zeros((n_relations, len(SIDES)), dtype=np.int64)  # equal weights
    means = found.mean((1, 2), dtype=np.float64)
    overall = int(means.argmax())
    chosen = np.full((n_relations, len(SIDES)), overall)
    for r in np.unique(relation):
        sums = found[:, relation == r].sum(1, dtype=np.float64)  # (C, 2)
        total = sums + PRIOR * means[:, None]
        # Among equals, the weights that are best for all relations.
        better = total.max(0) > total[overall]
        chosen[r] = np.where(better, total.argmax(0), overall)
    return overall, chosen


def _picked(
    found: npt.NDArray[np.float32], relation: npt.NDArray[Any], chosen: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32]:
    """1 / rank of each answer under the weighting of its relation and side: (n, 2)."""
    rows, sides = np.arange(len(relation))[:, None], np.arange(len(SIDES))
    picked: npt.NDArray[np.float32] = found[chosen[relation], rows, sides]
    return picked


def _cross_fitted(
    found: npt.NDArray[np.float32], relation: npt.NDArray[Any], n_relations: int
) -> float:
    """The MRR if the weights of every other triple are chosen by the triples between them."""
    halves = [slice(0, None, 2), slice(1, None, 2)]
    sums = [
        _picked(
            found[:, own], relation[own], _choose(found[:, other], relation[other], n_relations)[1]
        ).sum(dtype=np.float64)
        for own, other in (halves, halves[::-1])
    ]
    return float(sum(sums)) / (len(relation) * len(SIDES))
