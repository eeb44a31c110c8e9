"""Ranks against brute force: ties, filters, the smallest graphs and the busiest queries."""

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
from allneg.evaluation import PROTOCOLS
from allneg.evaluation.protocol import Protocol
from allneg.evaluation.ranks import Ranking, count_candidates, rank
from allneg.graph.known import KnownAnswers
from allneg.graph.queries import Queries
from allneg.models import MODELS
from allneg.scoring import Shard, Tables

World = Callable[..., Any]
ALLNEG = PROTOCOLS["allneg"]
steady = settings(deadline=None, derandomize=True, database=None, max_examples=60)


def brute_force(world: Any, split: str = "test") -> tuple[list[list[int]], list[list[int]]]:
    """Better and equal rivals of each triple, tail then head, by asking every entity in turn."""
    graph, scores = world.graph, world.scores.tolist()
    splits = ("train", "valid", "test") if split == "test" else ("train", "valid")
    facts = {tuple(each) for name in splits for each in graph.split(name).tolist()}
    better, equal = [], []
    for h, r, t in graph.split(split).tolist():
        tails = [o for o in range(graph.n_entities) if (h, r, o) not in facts]
        heads = [s for s in range(graph.n_entities) if (s, r, t) not in facts]
        rivals = [scores[r][h][o] for o in tails], [scores[r][s][t] for s in heads]
        better.append([sum(each > scores[r][h][t] for each in some) for some in rivals])
        equal.append([sum(each == scores[r][h][t] for each in some) for some in rivals])
    return better, equal


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Few different scores, so that ties are everywhere; one entity or relation now and then."""
    n, r = draw(st.integers(1, 7)), draw(st.integers(1, 3))
    ids = st.tuples(st.integers(0, n - 1), st.integers(0, r - 1), st.integers(0, n - 1))
    values = st.sampled_from([-1.5, -0.0, 0.0, 0.25, 3.0])
    told = draw(st.lists(values, min_size=r * n * n, max_size=r * n * n))
    return {
        "scores": torch.tensor(told).view(r, n, n),
        "train": draw(st.lists(ids, min_size=1, max_size=25)),
        "valid": draw(st.lists(ids, min_size=1, max_size=6)),
        "test": draw(st.lists(ids, min_size=1, max_size=6)),
    }


@pytest.mark.battery(34)
@given(case=cases(), split=st.sampled_from(["valid", "test"]), block=st.sampled_from([1, 9, 999]))
@steady
def test_ranks_agree_with_brute_force(
    case: dict[str, Any], split: str, block: int, world: World
) -> None:
    told = world(**case)
    better, equal = brute_force(told, split)
    found = told.rank(ALLNEG, split, block)
    assert found.better.tolist() == better
    assert found.equal.tolist() == equal
    assert found.ranks.tolist() == (1 + np.array(better) + np.array(equal) / 2).tolist()
    assert found.triples.tolist() == told.graph.split(split).tolist()
    assert (found.n_candidates, found.dropped) == (told.graph.n_entities, 0)


@pytest.mark.battery(34)
def test_a_question_with_thousands_of_known_answers_agrees_with_brute_force(world: World) -> None:
    n = 3000
    scores = torch.randint(0, 40, (1, n, n), generator=Generator().manual_seed(0))
    # Every even entity answers (0, 0, ?) in train; (?, 0, 7) has no known answer but the asked.
    train = [(0, 0, tail) for tail in range(0, n, 2)]
    told = world(scores, train, [], [(0, 0, 5), (2, 0, 7)])
    better, equal = brute_force(told)
    found = told.rank(ALLNEG)
    assert found.better.tolist() == better
    assert found.equal.tolist() == equal
    assert min(equal[0]) > 0


@pytest.mark.battery(34)
def test_a_question_nobody_knows_an_answer_to_has_every_other_entity_for_a_rival() -> None:
    elsewhere = KnownAnswers.of([np.array([[1, 0, 2]])], 4, 1)
    values = torch.tensor([[0.5, 0.5, 0.7, 0.1]])
    queries = Queries.of(torch.tensor([[0, 0, 0]]), "tail")
    assert count_candidates(values, queries, elsewhere, ALLNEG, Shard.whole(4)).tolist() == [[1, 1]]


@pytest.mark.battery(34)
def test_the_only_entity_is_first(world: World) -> None:
    found = world(torch.zeros(1, 1, 1), [(0, 0, 0)], [], [(0, 0, 0)]).rank(ALLNEG)
    assert found.ranks.tolist() == [[1, 1]]


@pytest.mark.battery(33)
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_a_model_that_says_the_same_of_everything_ranks_in_the_middle(n: int, world: World) -> None:
    told = world(torch.full((1, n, n), 0.1), [(0, 0, 0)], [], [(0, 0, 0), (n - 1, 0, n - 1)])
    rivals = n - 1
    assert told.rank(ALLNEG).ranks.tolist() == [[(n + 1) / 2] * 2] * 2
    # Optimistic, 1; pessimistic, n.
    assert told.rank(ALLNEG).better.tolist() == [[0, 0]] * 2
    assert told.rank(PROTOCOLS["kbc"]).ranks.tolist() == [[1 + rivals] * 2] * 2


@pytest.mark.battery(33)
@pytest.mark.parametrize("name", MODELS)
def test_every_model_with_equal_rows_ranks_in_the_middle(name: str, world: World) -> None:
    graph = world(torch.zeros(2, 9, 9), [(0, 0, 1)], [], [(2, 1, 3), (4, 0, 4)]).graph
    model = MODELS[name](dim=5, scale=1.0)
    # Whole numbers: a matrix product rounds the rows at its edge in another order.
    row = torch.arange(1.0, model.entity_width + 1).unsqueeze(0)
    relations = torch.stack([torch.zeros(model.relation_width), torch.ones(model.relation_width)])
    tables = Tables(row.repeat(9, 1), relations, Shard.whole(9), False)
    ranking = rank(model, tables, graph, "test", ALLNEG, 1 << 20)
    assert ranking.ranks.tolist() == [[5, 5], [5, 5]]


@pytest.mark.parametrize(
    "ties, place",
    [("middle", [2, 2.5, 3, 3.5]), ("middle-up", [2, 3, 3, 4]), ("last", [2, 3, 4, 5])],
)
def test_the_rule_for_ties_decides_the_place_among_equals(ties: Any, place: list[float]) -> None:
    # One rival is better, and 0, 1, 2, 3 are equal.
    equal = np.array([[0, 1], [2, 3]])
    triples = np.zeros((2, 3), dtype=np.int64)
    rule = Protocol("toy", ties)
    ranking = Ranking(rule, "test", triples, np.ones_like(equal), equal, 9, 0)
    assert ranking.ranks.flatten().tolist() == place


@pytest.mark.battery(33)
@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_score_that_is_not_finite_is_refused(
    bad: float, split: str, protocol: str, world: World
) -> None:
    scores = torch.zeros(1, 4, 4)
    # The only bad score is that of a known answer, which the filter would strike out.
    scores[0, 0, 1] = bad
    told = world(scores, [(0, 0, 1), (2, 0, 3)], [(0, 0, 2)], [(0, 0, 3)])
    with pytest.raises(Diverged, match="not finite"):
        told.rank(PROTOCOLS[protocol], split, block=1)


def test_a_split_without_triples_cannot_be_ranked(world: World) -> None:
    told = world(torch.zeros(1, 3, 3), [(0, 0, 1)], [], [(0, 0, 2)])
    with pytest.raises(DataError, match="told: valid has no triples to rank"):
        told.rank(ALLNEG, "valid")
    # PyKEEN drops the only triple of test: entity 2 is not in train.
    with pytest.raises(DataError, match="told: test has no triples to rank"):
        told.rank(PROTOCOLS["pykeen"])


def test_ranking_leaves_the_tables_alone(world: World) -> None:
    told = world(
        torch.randn(1, 4, 4, generator=Generator().manual_seed(0)),
        [(0, 0, 1)],
        [],
        [(0, 0, 2), (3, 0, 1)],
    )
    tables = told.tables
    before = tables.relations.detach().clone()
    first = rank(told.model, tables, told.graph, "test", ALLNEG, 1)
    second = rank(told.model, tables, told.graph, "test", ALLNEG, 1 << 20)
    assert tables.relations.equal(before)
    assert first.ranks.tolist() == second.ranks.tolist()


def test_valid_is_not_filtered_by_test(world: World) -> None:
    # All scores tie, so the ties of (0, 0, ?) are the candidates that are left.
    told = world(torch.zeros(1, 4, 4), [(0, 0, 1)], [(0, 0, 2)], [(0, 0, 3)])
    left = {name: told.rank(PROTOCOLS[name], "valid").equal[0, 0] for name in ("allneg", "kbc")}
    assert left == {"allneg": 2, "kbc": 1}  # entities 0 and 3; entity 0
    assert all(told.rank(PROTOCOLS[name]).equal[0, 0] == 1 for name in left)
