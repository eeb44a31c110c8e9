"""Ranks against brute force: ties, filters, tiny graphs, and queries with many answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Generator

from allneg.errors import DataError, Diverged
from allneg.evaluation import PROTOCOLS, selection_protocol
from allneg.evaluation.ranks import Protocol, Ranking, count_candidates, rank
from allneg.graph.queries import KnownAnswers, Queries
from allneg.models import MODELS
from allneg.recipe import Evaluation
from allneg.scoring import Shard, Tables

ScoredGraph = Callable[..., Any]
ALLNEG = PROTOCOLS["allneg"]
steady = settings(deadline=None, derandomize=True, database=None, max_examples=60)


def brute_force(scored_graph: Any, split: str = "test") -> tuple[list[list[int]], list[list[int]]]:
    """Higher and equal scores for each triple, tail then head, one entity at a time."""
    graph, scores = scored_graph.graph, scored_graph.scores.tolist()
    splits = ("train", "valid", "test")
    facts = {tuple(triple) for name in splits for triple in graph.split(name).tolist()}
    better, equal = [], []
    for h, r, t in graph.split(split).tolist():
        tails = [o for o in range(graph.n_entities) if (h, r, o) not in facts]
        heads = [s for s in range(graph.n_entities) if (s, r, t) not in facts]
        others = [scores[r][h][o] for o in tails], [scores[r][s][t] for s in heads]
        better.append([sum(score > scores[r][h][t] for score in some) for some in others])
        equal.append([sum(score == scores[r][h][t] for score in some) for some in others])
    return better, equal


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Few different scores, so that ties are everywhere; one entity or relation now and then."""
    n, r = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    ids = st.tuples(st.integers(0, n - 1), st.integers(0, r - 1), st.integers(0, n - 1))
    values = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 3.0])
    scored = draw(st.lists(values, min_size=r * n * n, max_size=r * n * n))
    return {
        "scores": torch.tensor(scored).view(r, n, n),
        "train": draw(st.lists(ids, min_size=1, max_size=25)),
        "valid": draw(st.lists(ids, min_size=1, max_size=6)),
        "test": draw(st.lists(ids, min_size=1, max_size=6)),
    }


@pytest.mark.battery(34)
@given(case=cases(), split=st.sampled_from(["valid", "test"]), block=st.sampled_from([1, 9, 999]))
@steady
def test_ranks_agree_with_brute_force(
    case: dict[str, Any], split: str, block: int, scored_graph: ScoredGraph
) -> None:
    scored = scored_graph(**case)
    better, equal = brute_force(scored, split)
    found = scored.rank(ALLNEG, split, block)
    assert found.better.tolist() == better
    assert found.equal.tolist() == equal
    assert found.ranks.tolist() == (1 + np.array(better) + np.array(equal) / 2).tolist()
    assert found.triples.tolist() == scored.graph.split(split).tolist()
    assert (found.n_candidates, found.dropped) == (scored.graph.n_entities, 0)


@pytest.mark.battery(34)
def test_a_query_with_thousands_of_known_answers_agrees_with_brute_force(
    scored_graph: ScoredGraph,
) -> None:
    n = 2600
    scores = torch.randint(0, 40, (1, n, n), generator=Generator().manual_seed(0))
    # 2,080 entities answer (0, 0, ?) in train; the only known answer to (?, 0, 7) is 2.
    train = [(0, 0, tail) for tail in range(n) if tail % 10 not in (5, 7)]
    scored = scored_graph(scores, train, [], [(0, 0, 5), (2, 0, 7)])
    better, equal = brute_force(scored)
    found = scored.rank(ALLNEG)
    assert found.better.tolist() == better
    assert found.equal.tolist() == equal
    assert min(equal[0]) > 0


@pytest.mark.battery(34)
def test_without_known_answers_every_other_entity_is_a_candidate() -> None:
    elsewhere = KnownAnswers.of([np.array([[1, 0, 2]])], 4, 1)
    values = torch.tensor([[0.5, 0.5, 0.7, 0.1]])
    queries = Queries.of(torch.tensor([[0, 0, 0]]), "tail")
    assert count_candidates(values, queries, elsewhere, ALLNEG, Shard.whole(4)).tolist() == [[1, 1]]


@pytest.mark.battery(34)
def test_the_only_entity_has_rank_one(scored_graph: ScoredGraph) -> None:
    found = scored_graph(torch.zeros(1, 1, 1), [(0, 0, 0)], [], [(0, 0, 0)]).rank(ALLNEG)
    assert found.ranks.tolist() == [[1, 1]]


@pytest.mark.battery(33)
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_a_constant_model_ranks_in_the_middle(n: int, scored_graph: ScoredGraph) -> None:
    scored = scored_graph(
        torch.full((1, n, n), 0.1), [(0, 0, 0)], [], [(0, 0, 0), (n - 1, 0, n - 1)]
    )
    others = n - 1
    assert scored.rank(ALLNEG).ranks.tolist() == [[(n + 1) / 2] * 2] * 2
    # Optimistic, 1; pessimistic, n.
    assert scored.rank(ALLNEG).better.tolist() == [[0, 0]] * 2
    assert scored.rank(PROTOCOLS["kbc"]).ranks.tolist() == [[1 + others] * 2] * 2


@pytest.mark.battery(33)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_with_equal_rows_ranks_in_the_middle(
    name: str, scored_graph: ScoredGraph
) -> None:
    graph = scored_graph(torch.zeros(2, 9, 9), [(0, 0, 1)], [], [(2, 1, 3), (4, 0, 4)]).graph
    model = MODELS[name](dim=5, scale=1.0)
    # Whole numbers: a matrix product rounds the rows at its edge in another order.
    row = torch.arange(1.0, model.entity_width + 1).unsqueeze(0)
    relations = torch.stack([torch.zeros(model.relation_width), torch.ones(model.relation_width)])
    shared = None if model.shared_shape is None else torch.ones(model.shared_shape)
    tables = Tables(row.repeat(9, 1), relations, Shard.whole(9), False, shared)
    ranking = rank(model, tables, graph, "test", ALLNEG, 1 << 20)
    assert ranking.ranks.tolist() == [[5, 5], [5, 5]]


@pytest.mark.parametrize(
    "ties, expected",
    [("middle", [2, 2.5, 3, 3.5]), ("middle-up", [2, 3, 3, 4]), ("last", [2, 3, 4, 5])],
)
def test_the_rule_for_ties_decides_the_rank_among_equal_scores(
    ties: Any, expected: list[float]
) -> None:
    # One score is higher, and 0, 1, 2, 3 are equal.
    equal = np.array([[0, 1], [2, 3]])
    triples = np.zeros((2, 3), dtype=np.int64)
    rule = Protocol("toy", ties)
    ranking = Ranking(rule, "test", triples, np.ones_like(equal), equal, 9, 0)
    assert ranking.ranks.flatten().tolist() == expected


@pytest.mark.battery(33)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_score_that_is_not_finite_is_refused(
    bad: float, split: str, protocol: str, scored_graph: ScoredGraph
) -> None:
    scores = torch.zeros(1, 4, 4)
    # The only bad score is that of a known answer, which the filter masks out.
    scores[0, 0, 1] = bad
    scored = scored_graph(scores, [(0, 0, 1), (2, 0, 3)], [(0, 0, 2)], [(0, 0, 3)])
    with pytest.raises(Diverged, match="not finite"):
        scored.rank(PROTOCOLS[protocol], split, block=1)


def test_a_split_without_triples_cannot_be_ranked(scored_graph: ScoredGraph) -> None:
    scored = scored_graph(torch.zeros(1, 3, 3), [(0, 0, 1)], [], [(0, 0, 2)])
    with pytest.raises(DataError, match="scored: valid has no triples to rank"):
        scored.rank(ALLNEG, "valid")
    # PyKEEN drops the only triple of test: entity 2 is not in train.
    with pytest.raises(DataError, match="scored: test has no triples to rank"):
        scored.rank(PROTOCOLS["pykeen"])


def test_ranking_does_not_change_the_tables(scored_graph: ScoredGraph) -> None:
    scored = scored_graph(
        torch.randn(1, 4, 4, generator=Generator().manual_seed(0)),
        [(0, 0, 1)],
        [],
        [(0, 0, 2), (3, 0, 1)],
    )
    tables = scored.tables
    before = tables.relations.detach().clone()
    first = rank(scored.model, tables, scored.graph, "test", ALLNEG, 1)
    second = rank(scored.model, tables, scored.graph, "test", ALLNEG, 1 << 20)
    assert tables.relations.equal(before)
    assert first.ranks.tolist() == second.ranks.tolist()


def test_valid_is_filtered_by_test_unless_the_filter_is_seen(scored_graph: ScoredGraph) -> None:
    # All scores tie, so the ties of (0, 0, ?) are the candidates that are left.
    scored = scored_graph(torch.zeros(1, 4, 4), [(0, 0, 1)], [(0, 0, 2)], [(0, 0, 3)])
    for rule, left in (("all", 1), ("seen", 2)):  # entity 0; entities 0 and 3
        protocol = selection_protocol(Evaluation(filter=rule))  # type: ignore[arg-type]
        assert scored.rank(protocol, "valid").equal[0, 0] == left
        assert scored.rank(protocol).equal[0, 0] == 1
