"""Is one model better than another, or did it have luck with the queries?

Both are asked the same queries, so their reciprocal ranks are compared pair by pair. The unit is
a triple, not a query: the two queries of a triple are easy or hard together, and counting
them as two would make differences look surer than they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, RecipeError
from allneg.evaluation.ranks import Ranking
from allneg.graph.check import graph_hashes
from allneg.graph.graph import Graph

Numbers = npt.NDArray[np.float64]
DRAWS = 10_000
_HELD = 1 << 20  # numbers drawn at once
_SURE = 0.05


@dataclass(frozen=True)
class Difference:
    """The first model's MRR less the second's, and how sure that is."""

    mean: float
    low: float  # 95 % interval, by bootstrap over triples
    high: float
    p: float  # how often chance alone makes so large a difference: signs flipped at random
    triples: int

    @property
    def is_sure(self) -> bool:
        return self.p < _SURE

    def in_words(self, first: str, second: str) -> str:
        ahead, behind, sign = (first, second, 1) if self.mean >= 0 else (second, first, -1)
        low, high = sorted((sign * self.low, sign * self.high))
        p = "p < .001" if self.p < 0.001 else f"p = {_decimal(self.p, 3)}"
        size = _decimal(abs(self.mean))
        sure = f"95 % interval {_decimal(low)} to {_decimal(high)}, {p}"
        if not self.mean:
            return f"{first} and {second} have the same MRR, {sure}"
        if self.is_sure:
            return f"{ahead} is better by {size} MRR, {sure}"
        return f"no clear difference: {ahead} is {size} MRR ahead of {behind}, {sure}"


@dataclass(frozen=True)
class Comparison:
    """Two rankings of the same queries."""

    split: str
    mrr: tuple[float, float]
    difference: Difference
    by_relation: Mapping[str, Difference]
    adjusted: Mapping[str, float]  # a relation's p among those of all relations

    def to_json(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "mrr": list(self.mrr),
            "difference": asdict(self.difference),
            "by_relation": {
                name: {**asdict(each), "adjusted_p": self.adjusted[name]}
                for name, each in self.by_relation.items()
            },
            "draws": DRAWS,
        }


def compare(first: Ranking, second: Ranking, graph: Graph, seed: int = 0) -> Comparison:
    """The difference of two rankings' MRR, over all and by relation, with the chance in it."""
    if first.protocol != second.protocol or not np.array_equal(first.triples, second.triples):
        raise RecipeError("only rankings of the same triples under one protocol can be compared")
    one, other = 1 / first.ranks, 1 / second.ranks
    pairs = (one - other).mean(axis=1)
    relation = first.triples[:, 1]
    by_relation = {
        graph.vocabulary.relations[r]: difference(pairs[relation == r], (seed, 1 + int(r)))
        for r in np.unique(relation)
    }
    return Comparison(
        first.split,
        (float(one.mean()), float(other.mean())),
        difference(pairs, (seed, 0)),
        by_relation,
        dict(zip(by_relation, _adjusted(each.p for each in by_relation.values()), strict=True)),
    )


def difference(pairs: Numbers, seed: tuple[int, ...]) -> Difference:
    """What the differences of single triples say about their mean: (n,)."""
    generator = np.random.default_rng(seed)
    low, high = np.quantile(_resampled(pairs, generator), (0.025, 0.975))
    p = _chance(pairs, generator)
    return Difference(float(pairs.mean()), float(low), float(high), p, len(pairs))


def same_data(names: tuple[str, str], graphs: tuple[Graph, Graph]) -> None:
    """Complain, with both hashes, unless two graphs are the same."""
    one, other = (graph_hashes(graph) for graph in graphs)
    for part, digest in one.items():
        if digest != other[part]:
            raise DataError(
                f"{names[0]} and {names[1]}: not the same data, so ranks cannot be compared.\n"
                f"SHA-256 of {part}: {digest[:16]}… and {other[part][:16]}…"
            )


def _resampled(pairs: Numbers, generator: np.random.Generator) -> Numbers:
    """Means of as many triples, drawn with replacement: (n,) -> (draws,)."""
    return np.concatenate(
        [
            pairs.take(generator.integers(len(pairs), size=(some, len(pairs)))).mean(1)
            for some in _pieces(len(pairs))
        ]
    )


def _chance(pairs: Numbers, generator: np.random.Generator) -> float:
    """How often the sum is as far from 0 when each sign is flipped by a coin.

    Were the models equally good, a triple would be as likely to favour one as the other. What was
    seen counts as one of the draws, so p is never 0.
    """
    pairs = pairs[pairs != 0]  # a flip changes nothing there
    seen = abs(pairs.sum()) * (1 - 1e-12)  # sums that are equal may differ by a rounding
    reached = 0
    for some in _pieces(len(pairs)):
        coins = np.frombuffer(generator.bytes(some * -(-len(pairs) // 8)), dtype=np.uint8)
        heads = np.unpackbits(coins.reshape(some, -1), axis=1, count=len(pairs))
        flipped = 2 * (heads.astype(np.float64) @ pairs) - pairs.sum()
        reached += int((abs(flipped) >= seen).sum())
    return (1 + reached) / (1 + DRAWS)


def _pieces(n: int) -> list[int]:
    """The draws, as many at once as memory should hold."""
    size = min(DRAWS, max(1, _HELD // max(1, n)))
    return [min(size, DRAWS - done) for done in range(0, DRAWS, size)]


def _adjusted(chances: Iterable[float]) -> list[float]:
    """p-values by Benjamini and Hochberg: up to q, a share q of the finds is expected false."""
    p = np.array(list(chances))
    order = np.argsort(-p, kind="stable")
    scaled = p[order] * len(p) / np.arange(len(p), 0, -1)
    result = np.empty_like(p)
    result[order] = np.minimum.accumulate(scaled)
    return [float(each) for each in result]


def _decimal(number: float, places: int = 4) -> str:
    """A number below 1 as tables print it: .0123, -.0050."""
    return f"{number:.{places}f}".replace("0.", ".", 1)
