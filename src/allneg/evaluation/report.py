"""Ranks → a report: MRR, mean rank and Hits, by side, relation and category."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.evaluation.ranks import Ranking
from allneg.graph.graph import CATEGORIES, Graph

HITS = (1, 3, 10)
_COLUMNS = {"tail": 0, "head": 1}


@dataclass(frozen=True)
class Metrics:
    """Means over queries."""

    mrr: float  # of 1 / rank
    mr: float  # of the rank
    hits: Mapping[str, float]  # share of ranks up to "1", "3", "10"
    count: int  # queries

    @classmethod
    def of(cls, ranks: npt.NDArray[np.floating[Any]]) -> Metrics:
        flat = ranks.reshape(-1)
        hits = {str(k): float((flat <= k).mean()) for k in HITS}
        return cls(float((1 / flat).mean()), float(flat.mean()), hits, len(flat))

    def to_json(self) -> dict[str, Any]:
        return {"mrr": self.mrr, "mr": self.mr, "hits": dict(self.hits), "count": self.count}


@dataclass(frozen=True)
class Report:
    """The numbers of one ranking, with the protocol they were made under."""

    mrr: float
    mr: float
    hits: Mapping[str, float]
    count: int  # queries: two a triple
    by_side: Mapping[str, Any]  # "head", "tail": mrr, mr, hits, count
    by_relation: Mapping[str, Any]  # name: the same, with category, head and tail
    by_category: Mapping[str, Any]  # "1-1", "1-n", "n-1", "n-n": the same, with head and tail
    optimistic: Mapping[str, Any]  # the same, with ties counted for the answer
    pessimistic: Mapping[str, Any]  # the same, with ties counted against it
    unseen: Mapping[str, Any]  # queries about entities not in train: the same, and dropped
    candidates: int  # entities that could be an answer
    protocol: Mapping[str, Any]  # the rules in full

    @classmethod
    def of(cls, ranking: Ranking, graph: Graph) -> Report:
        ranks, relation = ranking.ranks, ranking.triples[:, 1]
        whole = Metrics.of(ranks)
        names, category = graph.vocabulary.relations, graph.categories
        by_relation = {
            names[r]: {**each, "category": category[r]}
            for r, each in _grouped(ranks, relation).items()
        }
        kind = np.array([CATEGORIES.index(each) for each in category], dtype=np.int64)
        by_category = {CATEGORIES[k]: each for k, each in _grouped(ranks, kind[relation]).items()}
        touches = ~(graph.seen[ranking.triples[:, 0]] & graph.seen[ranking.triples[:, 2]])
        unseen = {"triples": int(touches.sum()), "dropped": ranking.dropped}
        if touches.any():
            unseen |= Metrics.of(ranks[touches]).to_json()
        return cls(
            **whole.to_json(),
            by_side={side: Metrics.of(ranks[:, i]).to_json() for side, i in _COLUMNS.items()},
            by_relation=by_relation,
            by_category=by_category,
            optimistic=Metrics.of(1.0 + ranking.better).to_json(),
            pessimistic=Metrics.of(1.0 + ranking.better + ranking.equal).to_json(),
            unseen=unseen,
            candidates=ranking.n_candidates,
            protocol={
                **ranking.protocol.to_json(ranking.split),
                "in_words": ranking.protocol.in_words(ranking.split),
            },
        )

    def __repr__(self) -> str:
        hits = ", ".join(f"Hits@{k} {share:.4f}" for k, share in self.hits.items())
        return f"<Report on {self.protocol['split']}: MRR {self.mrr:.4f}, {hits}>"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, said: Mapping[str, Any]) -> Report:
        """The report that `to_json` gave; a `TypeError` where it is none."""
        found = cls(**said)
        tables = (found.by_side, found.by_relation, found.by_category, found.unseen, found.protocol)
        if not all(isinstance(each, Mapping) for each in tables):
            raise TypeError("no tables")
        groups = (*found.by_relation.values(), *found.by_category.values())
        whole = (said, found.by_side.get("head"), found.by_side.get("tail"))
        if not (
            all(map(_are_metrics, (*whole, found.optimistic, found.pessimistic)))
            and all(_are_metrics(each, "head", "tail") for each in groups)
            and all(isinstance(each.get("category"), str) for each in found.by_relation.values())
            and all(is_number(found.unseen.get(name)) for name in ("triples", "dropped"))
            and all(isinstance(found.protocol.get(name), str) for name in ("split", "in_words"))
            and is_number(found.candidates)
        ):
            raise TypeError("no metrics")
        return found


def _are_metrics(said: Any, *parts: str) -> bool:
    """Are these numbers of a ranking, and those of its parts?"""
    if not isinstance(said, Mapping) or not isinstance(said.get("hits"), Mapping):
        return False
    numbers = [said.get(name) for name in ("mrr", "mr", "count")]
    hits = [said["hits"].get(str(k)) for k in HITS]
    return all(map(is_number, numbers + hits)) and all(_are_metrics(said.get(p)) for p in parts)


def is_number(said: Any) -> bool:
    """Is what a file says a number that is finite?"""
    return type(said) in (int, float) and math.isfinite(said)


def _grouped(
    ranks: npt.NDArray[np.float64], group: npt.NDArray[np.int64]
) -> dict[int, dict[str, Any]]:
    """By each group of triples: metrics of their queries, and of each side's alone.

    All groups are summed at once: a graph may have thousands of relations.
    """
    groups, place = np.unique(group, return_inverse=True)
    count = np.bincount(place)
    # What is averaged, by side and group: the metrics are linear in these.
    values = {"mrr": 1 / ranks, "mr": ranks, **{str(k): ranks <= k for k in HITS}}
    sums = {
        name: np.stack([np.bincount(place, weights=column) for column in each.T])
        for name, each in values.items()
    }

    def metrics(i: int, sides: list[int]) -> dict[str, Any]:
        n = int(count[i]) * len(sides)
        mean = {name: float(each[sides, i].sum() / n) for name, each in sums.items()}
        hits = {str(k): mean[str(k)] for k in HITS}
        return Metrics(mean["mrr"], mean["mr"], hits, n).to_json()

    return {
        int(each): {
            **metrics(i, [0, 1]),
            **{side: metrics(i, [column]) for side, column in _COLUMNS.items()},
        }
        for i, each in enumerate(groups)
    }
