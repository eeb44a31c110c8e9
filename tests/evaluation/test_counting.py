"""Ranks that are counted without stored scores are those of stored scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from allneg.errors import Diverged
from allneg.evaluation import PROTOCOLS, counting, ranks
from allneg.evaluation.within import Within
from allneg.graph import Graph, Vocabulary
from allneg.graph.queries import KnownAnswers, Queries
from allneg.hardware import torch_settings
from allneg.models import MODELS, Model
from allneg.recipe import Hardware
from allneg.scoring import Shard, Tables

ALLNEG = PROTOCOLS["allneg"]
N, R, DIM = 53, 3, 8


@pytest.fixture
def graph() -> Graph:
    """Few heads and relations, so that queries have many answers."""
    some = np.random.default_rng(0)
    splits = []
    for size in (400, 90, 110):
        triples = some.integers((N, R, N), size=(size, 3))
        triples[: size // 2, 0] %= 3
        splits.append(np.unique(triples, axis=0))
    names = Vocabulary(tuple(f"e{i}" for i in range(N)), tuple(f"r{i}" for i in range(R)))
    return Graph("made", names, *splits)


def made(ties: bool) -> tuple[Model, Tables]:
    """A model and its tables; with `ties`, of few whole numbers."""
    model = MODELS["distmult"](dim=DIM, scale=1.0)
    tables = Tables.create(model, R, Shard.whole(N), reciprocal=True, seed=0)
    if ties:
        for weight in tables.parameters():
            weight.data = torch.randint(-1, 2, weight.shape).float()
    return model, tables.padded(64)


@pytest.fixture
def by_counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Count on this CPU, a few queries at a time; how many queries were counted."""
    counted: list[int] = []
    whole = counting.count_without_scores

    def count(query: Any, *given: Any) -> Any:
        counted.append(len(query))
        return whole(query, *given)

    monkeypatch.setattr(ranks, "can_count", lambda rows: True)
    monkeypatch.setattr(ranks, "count_without_scores", count)
    monkeypatch.setattr(ranks, "_MANY_SCORES", 0)
    monkeypatch.setattr(ranks, "AT_ONCE", 17)
    return counted


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("name", ["allneg", "kbc"])
def test_ranks_are_those_of_stored_scores(
    graph: Graph, ties: bool, split: str, name: str, request: pytest.FixtureRequest
) -> None:
    model, tables = made(ties)
    rules = replace(PROTOCOLS[name], filter="seen")
    stored = ranks.rank(model, tables, graph, split, rules, 1 << 20)
    counted: list[int] = request.getfixturevalue("by_counting")
    found = ranks.rank(model, tables, graph, split, rules, 1 << 20)
    assert len(counted) > 2
    assert max(counted) == 17
    assert np.array_equal(found.better, stored.better)
    assert np.array_equal(found.equal, stored.equal)
    assert found.equal.any() == ties


def test_other_rules_store_scores(graph: Graph, by_counting: list[int]) -> None:
    model, tables = made(ties=False)
    for name in ("libkge", "pykeen"):
        ranks.rank(model, tables, graph, "test", PROTOCOLS[name], 1 << 20)
    within = Within.parse("seen", graph, "cpu")
    ranks.rank(model, tables, graph, "test", ALLNEG, 1 << 20, within)
    other = MODELS["transe"](dim=DIM, scale=1.0)
    distances = Tables.create(other, R, Shard.whole(N), reciprocal=False, seed=0)
    ranks.rank(other, distances, graph, "test", ALLNEG, 1 << 20)
    assert not by_counting


@pytest.mark.usefixtures("by_counting")
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, 1e38])
@pytest.mark.parametrize("table", ["entities", "relations"])
def test_a_score_that_is_not_finite_is_an_error(graph: Graph, bad: float, table: str) -> None:
    model, tables = made(ties=True)
    tables.get_parameter(table).data[0] = bad
    with pytest.raises(Diverged):
        ranks.rank(model, tables, graph, "test", ALLNEG, 1 << 20)


def test_parts_of_the_rows_add_up(graph: Graph) -> None:
    """A process without an answer's row takes its score from the others."""
    model, tables = made(ties=True)
    known = KnownAnswers.of([graph.train, graph.test], N, R)
    queries, _ = Queries.of(torch.from_numpy(graph.test), "tail").distinct()
    query, rows = ranks.query_vectors(model, tables, queries), tables.entities.detach()[:N]
    assert queries.group is not None
    answer = (query @ rows.T)[queries.group, queries.answer]

    class Group:
        size = 2

        def max(self, here: Any) -> Any:
            assert ((here == answer) | here.isneginf()).all()
            return answer

    class Part(Shard):
        rows: Any = Group()

    counts = [
        counting.count_without_scores(query, rows[part], queries, known, shard)
        for part, shard in (
            (slice(0, 20), Part(0, 20, N)),
            (slice(20, N), Part(20, N, N)),
            (slice(0, N), Shard.whole(N)),
        )
    ]
    assert (counts[0] + counts[1]).equal(counts[2])


def test_known_answers_are_counted_in_the_order_of_their_scores() -> None:
    scores = torch.tensor([-0.0, -2.5, 3.0, 0.0, 1e-40, -1e-40, 3.0, -2.5])
    of_query = torch.tensor([1, 1, 0, 1, 1, 1, 1, 2])
    answer, group = torch.tensor([0.0, 5.0, -3.0, 0.0]), torch.tensor([1, 1, 1, 2])
    found = counting._count_known(answer, group, scores, of_query)
    assert found.tolist() == [[2, 2], [0, 0], [6, 0], [0, 0]]


@pytest.mark.gpu
@pytest.mark.parametrize("ties", [False, True])
def test_a_gpu_counts_what_it_would_store(
    graph: Graph, ties: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("needs bulk copies")
    model, tables = made(ties)
    monkeypatch.setattr(ranks, "_MANY_SCORES", 0)
    with torch_settings(Hardware(device="cuda", precision="tf32")) as device:
        there = tables.to(device)
        rows = there.entities.detach()[:N]
        assert ranks.counts_without_scores(model, rows, ALLNEG, 1)
        found = ranks.rank(model, there, graph, "test", ALLNEG, 1 << 20)
        monkeypatch.setattr(ranks, "can_count", lambda rows: False)
        stored = ranks.rank(model, there, graph, "test", ALLNEG, 1 << 20)
    assert (found.equal >= 0).all()
    assert np.abs(found.ranks - stored.ranks).mean() <= (0 if ties else 0.2)
