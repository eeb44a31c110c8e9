from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from allneg.errors import DataError, RecipeError
from allneg.evaluation import PROTOCOLS
from allneg.evaluation.compare import (
    DRAWS,
    SIGNIFICANT,
    Difference,
    _adjusted,
    compare,
    difference,
    same_data,
)
from allneg.evaluation.ranks import Ranking
from allneg.graph import Graph

Ranked = Callable[[int], tuple[Ranking, Graph]]
TEST = [(0, 0, 1), (1, 0, 2), (2, 1, 3), (3, 1, 4), (4, 1, 0)]


@pytest.fixture
def ranked(scored_graph: Callable[..., Any]) -> Ranked:
    """A ranking with random scores, and its graph."""

    def made(seed: int) -> tuple[Ranking, Graph]:
        scores = torch.rand(2, 6, 6, generator=torch.Generator().manual_seed(seed))
        scored = scored_graph(scores, train=[(0, 0, 5), (5, 1, 0)], valid=[], test=TEST)
        return scored.rank(PROTOCOLS["allneg"]), scored.graph

    return made


def test_the_difference_is_that_of_the_two_mrrs(
    ranked: Ranked,
) -> None:
    (first, graph), (second, _) = ranked(1), ranked(2)
    found = compare(first, second, graph)
    one, other = (1 / ranking.ranks for ranking in (first, second))
    assert found.mrr == pytest.approx((one.mean(), other.mean()))
    assert found.difference.mean == pytest.approx(one.mean() - other.mean())
    assert found.difference.triples == 5
    assert found.by_relation.keys() == {"r0", "r1"}
    assert found.by_relation["r1"].triples == 3
    assert found.by_relation["r1"].mean == pytest.approx(one[2:].mean() - other[2:].mean())
    assert found.difference.low < found.difference.mean < found.difference.high


def test_the_order_of_the_runs_does_not_matter(
    ranked: Ranked,
) -> None:
    (first, graph), (second, _) = ranked(1), ranked(2)
    there, back = compare(first, second, graph), compare(second, first, graph)
    assert back.difference.mean == -there.difference.mean
    assert back.difference.low == pytest.approx(-there.difference.high)
    assert back.difference.p == there.difference.p
    assert compare(first, second, graph) == there


def test_a_ranking_is_not_better_than_itself(
    ranked: Ranked,
) -> None:
    ranking, graph = ranked(1)
    found = compare(ranking, ranking, graph).difference
    assert found == Difference(0.0, 0.0, 0.0, 1.0, 5)
    assert found.in_words("A", "B").startswith("A and B have the same MRR")


def test_rankings_of_other_triples_are_refused(
    ranked: Ranked,
) -> None:
    ranking, graph = ranked(1)
    for other in (
        replace(ranking, triples=ranking.triples[::-1]),
        replace(ranking, protocol=PROTOCOLS["kbc"]),
    ):
        with pytest.raises(RecipeError, match="the same triples under one protocol"):
            compare(ranking, other, graph)


@pytest.mark.parametrize("seed", range(3))
def test_p_is_the_share_of_sign_flips_with_as_large_a_sum(seed: int) -> None:
    pairs = np.random.default_rng(seed).normal(0.3, 1, size=9)
    flips = np.array(list(itertools.product((-1, 1), repeat=9)))
    exact = (abs(flips @ pairs) >= abs(pairs.sum()) - 1e-9).mean()
    sigma = np.sqrt(exact * (1 - exact) / DRAWS)
    assert difference(pairs, (seed,)).p == pytest.approx(exact, abs=5 * sigma + 1 / DRAWS)


def test_the_interval_is_that_of_a_naive_bootstrap() -> None:
    pairs = np.random.default_rng(0).exponential(size=40) - 0.7
    generator = np.random.default_rng(99)
    means = sorted(
        sum(pairs[int(i)] for i in generator.integers(40, size=40)) / 40 for _ in range(4000)
    )
    found = difference(pairs, (0,))
    # The width is about .6; the ends of two bootstraps differ by some hundredths of it.
    assert found.low == pytest.approx(means[100], abs=0.03)
    assert found.high == pytest.approx(means[3899], abs=0.03)
    assert means[100] < found.mean < means[3899]


def test_draws_of_many_triples_are_made_in_parts() -> None:
    pairs = np.random.default_rng(0).normal(0, 1, size=5000)  # fifty parts
    found = difference(pairs, (0,))
    error = pairs.std() / np.sqrt(len(pairs))
    assert found.low == pytest.approx(pairs.mean() - 1.96 * error, abs=0.1 * error)
    assert found.high == pytest.approx(pairs.mean() + 1.96 * error, abs=0.1 * error)


def test_a_small_steady_gain_is_significant_and_noise_is_not() -> None:
    generator = np.random.default_rng(0)
    gain = difference(generator.normal(0.02, 0.05, size=400), (0,))
    assert gain.p < SIGNIFICANT
    assert gain.p == 1 / (1 + DRAWS)
    noise = generator.normal(0, 0.5, size=400)
    assert difference(noise - noise.mean() + 0.001, (0,)).p > SIGNIFICANT


def test_p_values_are_adjusted_for_the_number_of_relations() -> None:
    # By hand: .01 * 4/1, .02 * 4/2, .03 * 4/3 and .5; from the largest down, none may rise.
    assert _adjusted([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.04, 0.04])
    assert _adjusted([0.2]) == [0.2]
    assert _adjusted([]) == []


@pytest.mark.parametrize(
    "found, words",
    [
        (
            Difference(0.0123, 0.0101, 0.0145, 0.0001, 9),
            "A is better by .0123 MRR, 95 % interval .0101 to .0145, p < .001",
        ),
        (
            Difference(-0.0123, -0.0145, -0.0101, 0.02, 9),
            "B is better by .0123 MRR, 95 % interval .0101 to .0145, p = .020",
        ),
        (
            Difference(0.0003, -0.001, 0.0016, 0.62, 9),
            "no clear difference: A is .0003 MRR ahead of B, 95 % interval -.0010 to .0016, "
            "p = .620",
        ),
        (
            Difference(0.0, 0.0, 0.0, 1.0, 9),
            "A and B have the same MRR, 95 % interval .0000 to .0000, p = 1.000",
        ),
    ],
)
def test_a_difference_in_words(found: Difference, words: str) -> None:
    assert found.in_words("A", "B") == words


def test_other_data_is_refused_with_both_hashes(tiny_graph: Graph) -> None:
    same_data(("one", "other"), (tiny_graph, replace(tiny_graph, name="renamed")))
    other = replace(tiny_graph, test=tiny_graph.test[::-1])
    with pytest.raises(
        DataError, match=r"one and other: not the same data.*\n.*of test: \w{16}… and \w{16}…"
    ):
        same_data(("one", "other"), (tiny_graph, other))
