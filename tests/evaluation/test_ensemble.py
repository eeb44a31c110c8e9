from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allneg.evaluation.ensemble import PRIOR, choose_weights, weight_grid
from allneg.graph import Graph


@pytest.mark.parametrize("n", [2, 3, 5, 8, 40])
def test_the_grid_has_sums_of_one_and_every_single_member(n: int) -> None:
    grid = weight_grid(n)
    assert grid.sum(1) == pytest.approx(1)
    assert grid.min() >= 0
    assert len(grid) <= 151
    assert len({tuple(row) for row in grid[1:]}) == len(grid) - 1
    assert all((grid == row).all(1).any() for row in np.eye(n))
    assert (grid == 1 / n).all(1).any()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_counts_are_used_or_not(n: int) -> None:
    grid, of_runs = weight_grid(n, counts=True), {tuple(row) for row in weight_grid(n)}
    assert {tuple(row[:-1]) for row in grid[:-1]} == of_runs
    for weight in (0, 1):
        assert {tuple(row[:-1]) for row in grid[:-1] if row[-1] == weight} == of_runs
    assert all((grid == row).all(1).any() for row in np.eye(n + 1))


def test_the_grid_of_two_members_has_tenths() -> None:
    assert sorted(weight_grid(2)[1:, 0]) == pytest.approx(np.arange(11) / 10)


def _ranked(tiny_graph: Graph, sizes: list[int]) -> Graph:
    """A graph whose valid has this many facts of each relation."""
    relation = np.repeat(np.arange(len(sizes)), sizes)
    return replace(tiny_graph, valid=np.stack([relation * 0, relation, relation * 0], axis=1))


def test_a_relation_with_many_facts_has_its_own_weights(tiny_graph: Graph) -> None:
    graph, grid = _ranked(tiny_graph, [10 * PRIOR, 10 * PRIOR]), np.array([[1.0, 0], [0, 1]])
    found = np.full((2, 20 * PRIOR, 2), 0.5, dtype=np.float32)
    found[0, : 10 * PRIOR] = 0.8  # the first member is better for relation 0,
    found[1, 10 * PRIOR :, 1] = 0.6  # and the second for head queries of relation 1
    chosen = choose_weights(found, grid, graph)
    assert chosen.overall.tolist() == [1, 0]
    assert chosen.weights.tolist() == [
        [[1, 0], [1, 0]],
        [[1, 0], [0, 1]],
        [[1, 0], [1, 0]],  # no facts in valid
    ]
    assert chosen.member_mrrs == pytest.approx([0.65, 0.525])
    assert chosen.overall_mrr == pytest.approx(0.65)
    assert chosen.mrr == pytest.approx(0.675)


def test_a_relation_with_few_facts_gets_the_weights_of_all(tiny_graph: Graph) -> None:
    graph, grid = _ranked(tiny_graph, [1000, 3]), np.array([[1.0, 0], [0, 1]])
    found = np.full((2, 1003, 2), 0.5, dtype=np.float32)
    found[0, :1000] = 0.8
    found[1, 1000:] = 1.0
    assert choose_weights(found, grid, graph).weights[1].tolist() == [[1, 0], [1, 0]]


def test_valid_never_gets_worse_by_weights_per_relation_or_by_members(tiny_graph: Graph) -> None:
    generator = np.random.default_rng(0)
    graph, grid = _ranked(tiny_graph, [40, 7, 150]), weight_grid(3)
    for _ in range(20):
        found = generator.random((len(grid), 197, 2), dtype=np.float32)
        chosen = choose_weights(found, grid, graph)
        assert chosen.mrr >= chosen.overall_mrr - 1e-12
        assert chosen.overall_mrr >= max(chosen.member_mrrs)


def test_cross_fitting_chooses_the_weights_of_each_half_by_the_other(tiny_graph: Graph) -> None:
    graph, grid = _ranked(tiny_graph, [8]), np.array([[1.0, 0], [0, 1]])
    found = np.full((2, 8, 2), 0.5, dtype=np.float32)
    found[0, 0::2] = 1.0  # each member is good at what the other half does not have
    found[1, 1::2] = 1.0
    chosen = choose_weights(found, grid, graph)
    assert chosen.mrr == pytest.approx(0.75)
    assert chosen.cross_fitted_mrr == pytest.approx(0.5)
    found[0], found[1] = 1.0, 0.5  # the same choice in both halves
    chosen = choose_weights(found, grid, graph)
    assert chosen.cross_fitted_mrr == pytest.approx(chosen.mrr)


def test_a_single_triple_is_ranked_with_equal_weights(tiny_graph: Graph) -> None:
    found = np.zeros((12, 1, 2), dtype=np.float32)
    found[0], found[5] = 0.5, 1.0
    chosen = choose_weights(found, weight_grid(2), _ranked(tiny_graph, [1]))
    assert (chosen.mrr, chosen.cross_fitted_mrr) == (1.0, 0.5)
