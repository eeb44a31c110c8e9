"""Ranks → a report: the metrics of all queries, and by side, relation and category."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from allneg.evaluation.calibration import Calibration
from allneg.evaluation.ranks import PROTOCOLS, Protocol, Ranking, rank
from allneg.graph.graph import CATEGORIES, Graph
from allneg.models import Model
from allneg.recipe import Evaluation
from allneg.scoring.tables import Tables

Ranks = npt.NDArray[np.floating[Any]]

HITS = (1, 3, 10)
# A metric is the mean over queries of a function of the rank, or a table of such means. To add
# one, add a line: reports, JSON and printed tables take their lists from here.
METRICS: dict[str, Callable[[Ranks], Any]] = {
    "mrr": lambda ranks: 1 / ranks,
    "mr": lambda ranks: ranks,
    "hits": lambda ranks: {str(k): ranks <= k for k in HITS},
}
_COLUMNS = {"tail": 0, "head": 1}


def metrics_of(ranks: Ranks, weights: Ranks | None = None) -> dict[str, Any]:
    """The metrics of some ranks: mrr, mr, hits, count."""
    flat = ranks.reshape(-1)
    means = {
        name: _apply(lambda v: float(np.average(v, weights=weights)), METRICS[name](flat))
        for name in METRICS
    }
    return {**means, "count": len(flat)}


def by_heading(table: Mapping[str, Any]) -> dict[str, float | None]:
    """A table's metrics by heading: MRR, MR, Hits@1, …; None if its version did not have one."""
    found: dict[str, float | None] = {}
    for name in METRICS:
        value = table.get(name)
        if isinstance(value, Mapping):
            found |= {f"{name.title()}@{k}": mean for k, mean in value.items()}
        else:
            found[name.upper()] = value
    return found


class Hits(dict[str, float]):
    """Hits@k by k."""

    def __missing__(self, k: object) -> float:
        if isinstance(k, int) and str(k) in self:
            return self[str(k)]
        raise KeyError(f"no Hits@{k}; there are {', '.join(self)}")


@dataclass(frozen=True)
class Report:
    """The metrics of one ranking. Each table has the keys mrr, mr, hits and count."""

    metrics: Mapping[str, Any]  # of all queries, two per triple
    by_side: Mapping[str, Any]  # "head", "tail"
    by_relation: Mapping[str, Any]  # by name; each with its category and tables "head", "tail"
    by_category: Mapping[str, Any]  # "1-1", "1-n", "n-1", "n-n"; each with tables "head", "tail"
    optimistic: Mapping[str, Any]  # if ties counted for the answer
    pessimistic: Mapping[str, Any]  # if ties counted against it
    unseen: Mapping[str, Any]  # triples with entities that are not in train, and dropped ones
    candidates: int  # entities that can be an answer
    protocol: Mapping[str, Any]
    # By name: a table with "by_side", and "by_relation" with only MRRs. Empty if not computed.
    baselines: Mapping[str, Any] = field(default_factory=dict)
    # Of an ensemble: its members, and their weights by relation and side.
    ensemble: Mapping[str, Any] = field(default_factory=dict)
    calibration: Mapping[str, Any] = field(default_factory=dict)  # empty if not computed

    @property
    def mrr(self) -> float:
        return float(self.metrics["mrr"])

    @property
    def mr(self) -> float:
        return float(self.metrics["mr"])

    @property
    def hits(self) -> Hits:
        """Hits@k: the share of ranks up to k, for k = "1", "3" and "10"; 10 works as "10" does."""
        return Hits(self.metrics["hits"])

    @property
    def count(self) -> int:
        return int(self.metrics["count"])

    def best_baseline(self, relation: str, side: str) -> float | None:
        """The MRR of the best baseline for one side of a relation; None without baselines."""
        mrrs = [table["by_relation"][relation][side] for table in self.baselines.values()]
        return max(mrrs, default=None)

    def sides_behind(self) -> list[tuple[str, str]]:
        """The relations and sides where a baseline is as good or better."""
        return [
            (name, side)
            for name, metrics in self.by_relation.items()
            for side in _COLUMNS
            if (best := self.best_baseline(name, side)) is not None and best >= metrics[side]["mrr"]
        ]

    @classmethod
    def of(cls, ranking: Ranking, graph: Graph) -> Self:
        ranks, relation = ranking.ranks, ranking.triples[:, 1]
        names, category = graph.vocabulary.relations, graph.categories
        by_relation = _by_group(ranks, relation)
        by_category = _by_group(ranks, np.array([CATEGORIES.index(c) for c in category])[relation])
        is_unseen = ~(graph.seen[ranking.triples[:, 0]] & graph.seen[ranking.triples[:, 2]])
        unseen = {"triples": int(is_unseen.sum()), "dropped": ranking.dropped}
        return cls(
            metrics=metrics_of(ranks),
            by_side={side: metrics_of(ranks[:, i]) for side, i in _COLUMNS.items()},
            by_relation={
                names[r]: {**by_relation[r], "category": category[r]} for r in by_relation
            },
            by_category={CATEGORIES[i]: table for i, table in by_category.items()},
            optimistic=metrics_of(1.0 + ranking.better),
            pessimistic=metrics_of(1.0 + ranking.better + ranking.equal),
            unseen=unseen | (metrics_of(ranks[is_unseen]) if is_unseen.any() else {}),
            candidates=ranking.n_candidates,
            protocol=ranking.protocol.to_json(ranking.split),
        )

    def __repr__(self) -> str:
        metrics = by_heading(self.metrics).items()
        text = ", ".join(f"{name} {mean:.4f}" for name, mean in metrics if mean is not None)
        return f"<Report on {self.protocol['split']}: {text}>"

    def to_json(self) -> dict[str, Any]:
        parts = dict(vars(self))
        return {**parts.pop("metrics"), **parts}

    @classmethod
    def from_json(cls, content: Any) -> Self:
        """The inverse of `to_json`. Raises a `TypeError` for other content.

        Files of earlier versions may lack baselines, the calibration and metrics that were added
        later; unknown fields are kept.
        """
        try:
            content = {"baselines": {}, "ensemble": {}, "calibration": {}, **content}
            baselines = content["baselines"].values()
            groups = [*content["by_relation"].values(), *content["by_category"].values()]
            both = (content["by_side"], *groups, *(table["by_side"] for table in baselines))
            sides = [group[side] for group in both for side in _COLUMNS]
            totals = [content, content["optimistic"], content["pessimistic"], *baselines]
            tables = [*totals, *groups, *sides]
            numbers = [table[name] for table in tables for name in ("mrr", "mr", "count")]
            numbers += [table["hits"][k] for table in tables for k in ("1", "3", "10")]
            numbers += [content["candidates"], *map(content["unseen"].get, ("triples", "dropped"))]
            names = content["by_relation"]
            mrrs = (table["by_relation"][name] for table in baselines for name in names)
            numbers += [mrr[name] for mrr in mrrs for name in ("mrr", *_COLUMNS)]
            if content["calibration"]:
                numbers += Calibration.numbers_of(content["calibration"])
            texts = [group["category"] for group in content["by_relation"].values()]
            texts += [content["protocol"][name] for name in ("name", "split", "in_words")]
            if ensemble := content["ensemble"]:
                members = ensemble["members"]
                numbers.append(ensemble["valid_mrr"])
                pairs = zip(members, ensemble["weights"], strict=True)
                numbers += [number for m, weight in pairs for number in (m["valid_mrr"], weight)]
                texts += [member[name] for member in members for name in ("run", "model")]
                sides = [side for table in ensemble["by_relation"].values() for side in table]
                texts += [ensemble["selection"], *sides]
        except (KeyError, AttributeError, TypeError, ValueError) as error:
            raise TypeError(f"not a report: {error}") from None
        if not all(map(is_number, numbers)) or not all(isinstance(text, str) for text in texts):
            raise TypeError("not a report: wrong types")
        if content["calibration"]:
            Calibration.from_json(content["calibration"])
        parts = [field.name for field in fields(cls)][1:]
        metrics = {name: value for name, value in content.items() if name not in parts}
        return cls(metrics, *(content[name] for name in parts))


def evaluate(
    model: Model,
    tables: Tables,
    graph: Graph,
    split: str = "test",
    protocol: Protocol = PROTOCOLS["allneg"],
    block: int = Evaluation.block,
) -> Report:
    """Rank every triple of a split from both sides and return the report."""
    return Report.of(rank(model, tables, graph, split, protocol, block), graph)


def is_number(value: Any) -> bool:
    """Is a value from a file a finite number of at most 64 bits?"""
    if type(value) is int:
        return abs(value) < 1 << 63
    return type(value) is float and math.isfinite(value)


def _by_group(ranks: Ranks, group: npt.NDArray[np.int64]) -> dict[int, dict[str, Any]]:
    """The metrics of each group of triples, in total and by side; all groups are summed at once."""
    groups, index = np.unique(group, return_inverse=True)
    count = np.bincount(index)

    def group_sums(values: npt.NDArray[Any]) -> Ranks:
        return np.stack([np.bincount(index, weights=column) for column in values.T])

    sums = {name: _apply(group_sums, metric(ranks)) for name, metric in METRICS.items()}

    def table(i: int, columns: list[int]) -> dict[str, Any]:
        n = int(count[i]) * len(columns)
        means = {
            name: _apply(lambda v: float(v[columns, i].sum() / n), sums[name]) for name in sums
        }
        return {**means, "count": n}

    return {
        int(label): table(i, [0, 1]) | {side: table(i, [c]) for side, c in _COLUMNS.items()}
        for i, label in enumerate(groups)
    }


def _apply(function: Callable[[npt.NDArray[Any]], Any], value: Any) -> Any:
    """`function` of an array, or of each array in a table."""
    return {k: function(value[k]) for k in value} if isinstance(value, dict) else function(value)
