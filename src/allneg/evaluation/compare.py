"""Is the difference between two models significant?

Both rank the same queries, so their reciprocal ranks are compared pair by pair. The unit is a
triple, since its two queries are easy or hard together: they are not independent.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from allneg.errors import DataError, RecipeError
from allneg.evaluation.curves import Numbers
from allneg.evaluation.ranks import Ranking
from allneg.graph.check import graph_hashes
from allneg.graph.graph import Graph

DRAWS = 10_000
_NUMBERS_AT_ONCE = 1 << 20
SIGNIFICANT = 0.05  # p-values below this


@dataclass(frozen=True)
class Difference:
    """The first model's MRR minus the second's."""

    mean: float
    low: float  # 95 % interval, by bootstrap over triples
    high: float
    p: float  # two-sided, by a permutation test that flips signs
    triples: int

    def in_words(self, first: str, second: str) -> str:
        ahead, behind, sign = (first, second, 1) if self.mean >= 0 else (second, first, -1)
        low, high = sorted((sign * self.low, sign * self.high))
        p = "p < .001" if self.p < 0.001 else f"p = {_decimal(self.p, 3)}"
        size = _decimal(abs(self.mean))
        interval = f"95 % interval {_decimal(low)} to {_decimal(high)}, {p}"
        if not self.mean:
            return f"{first} and {second} have the same MRR, {interval}"
        if self.p < SIGNIFICANT:
            return f"{ahead} is better by {size} MRR, {interval}"
        return f"no clear difference: {ahead} is {size} MRR ahead of {behind}, {interval}"


@dataclass(frozen=True)
class Comparison:
    """Two rankings of the same queries."""

    split: str
    mrr: tuple[float, float]
    difference: Difference
    by_relation: Mapping[str, Difference]
    adjusted: Mapping[str, float]  # p-values of the relations, adjusted for their number

    def to_json(self) -> dict[str, Any]:
        return {
            "split": self.split,
            "mrr": list(self.mrr),
            "difference": asdict(self.difference),
            "by_relation": {
                name: {**asdict(self.by_relation[name]), "adjusted_p": p}
                for name, p in self.adjusted.items()
            },
            "draws": DRAWS,
        }


def compare(first: Ranking, second: Ranking, graph: Graph, seed: int = 0) -> Comparison:
    """The difference of two rankings' MRR, over all triples and by relation."""
    if first.protocol != second.protocol or not np.array_equal(first.triples, second.triples):
        raise RecipeError("only rankings of the same triples under one protocol can be compared")
    one, other = 1 / first.ranks, 1 / second.ranks
    pairs = (one - other).mean(axis=1)
    relation = first.triples[:, 1]
    by_relation = {
        graph.vocabulary.relations[r]: difference(pairs[relation == r], (seed, 1 + int(r)))
        for r in np.unique(relation)
    }
    adjusted = _adjusted([found.p for found in by_relation.values()])
    return Comparison(
        first.split,
        (float(one.mean()), float(other.mean())),
        difference(pairs, (seed, 0)),
        by_relation,
        dict(zip(by_relation, adjusted, strict=True)),
    )


def difference(pairs: Numbers, seed: tuple[int, ...]) -> Difference:
    """The mean of the triples' differences, with its interval and p: (n,)."""
    generator = np.random.default_rng(seed)
    n = len(pairs)
    means = [pairs.take(generator.integers(n, size=(draws, n))).mean(1) for draws in _draw_sizes(n)]
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    p = _permutation_test(pairs, generator)
    return Difference(float(pairs.mean()), float(low), float(high), p, n)


def same_data(names: tuple[str, str], graphs: tuple[Graph, Graph]) -> None:
    """Raise a `DataError` with both hashes unless two graphs are the same."""
    one, other = (graph_hashes(graph) for graph in graphs)
    for part, digest in one.items():
        if digest != other[part]:
            raise DataError(
                f"{names[0]} and {names[1]}: not the same data.\n"
                f"SHA-256 of {part}: {digest[:16]}… and {other[part][:16]}…"
            )


def _permutation_test(pairs: Numbers, generator: np.random.Generator) -> float:
    """How often the sum is at least as far from 0 when every sign is flipped at random.

    If the models were equally good, each triple would favour either with equal probability. The
    observed signs count as one of the draws, so p is never 0.
    """
    pairs = pairs[pairs != 0]  # flips do not change these
    observed = abs(pairs.sum()) * (1 - 1e-12)  # equal sums may differ by rounding
    reached = 0
    for draws in _draw_sizes(len(pairs)):
        coins = np.frombuffer(generator.bytes(draws * -(-len(pairs) // 8)), dtype=np.uint8)
        heads = np.unpackbits(coins.reshape(draws, -1), axis=1, count=len(pairs))
        flipped = 2 * (heads.astype(np.float64) @ pairs) - pairs.sum()
        reached += int((abs(flipped) >= observed).sum())
    return (1 + reached) / (1 + DRAWS)


def _draw_sizes(n: int) -> list[int]:
    """DRAWS in parts of as many draws of n numbers as should be in memory at once."""
    size = min(DRAWS, max(1, _NUMBERS_AT_ONCE // max(1, n)))
    return [min(size, DRAWS - done) for done in range(0, DRAWS, size)]


def _adjusted(values: list[float]) -> list[float]:
    """p-values adjusted by Benjamini and Hochberg, which controls the false discovery rate."""
    p = np.array(values)
    order = np.argsort(-p, kind="stable")
    scaled = p[order] * len(p) / np.arange(len(p), 0, -1)
    result = np.empty_like(p)
    result[order] = np.minimum.accumulate(scaled)
    return [float(value) for value in result]


def _decimal(number: float, digits: int = 4) -> str:
    """A number below 1 as tables print it: .0123, -.0050."""
    return f"{number:.{digits}f}".replace("0.", ".", 1)
