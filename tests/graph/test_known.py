"""The sorted index of known answers against a dict of sets."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side

N, R = 6, 3
EVERY = torch.cartesian_prod(torch.arange(N), torch.arange(R))

ids = st.tuples(st.integers(0, N - 1), st.integers(0, R - 1), st.integers(0, N - 1))
splits = st.lists(st.lists(ids, max_size=40), min_size=1, max_size=3).filter(any)
steady = settings(deadline=None, derandomize=True, database=None, max_examples=100)


def index(parts: list[list[tuple[int, int, int]]]) -> KnownAnswers:
    return KnownAnswers.of([np.array(part, dtype=np.int64).reshape(-1, 3) for part in parts], N, R)


def every_query(side: Side) -> Queries:
    """Each entity with each relation, known or not; the answers queries for do not matter."""
    return Queries.for_side(
        side, EVERY[:, 0], EVERY[:, 1], torch.zeros(len(EVERY), dtype=torch.int64)
    )


def sets(parts: list[list[tuple[int, int, int]]], side: Side) -> list[set[int]]:
    found: dict[tuple[int, int], set[int]] = defaultdict(set)
    for head, relation, tail in (triple for part in parts for triple in part):
        entity, answer = (head, tail) if side == "tail" else (tail, head)
        found[entity, relation].add(answer)
    return [found[entity, relation] for entity, relation in EVERY.tolist()]


@given(parts=splits, side=st.sampled_from(SIDES))
@steady
def test_pairs_are_every_answer_of_every_query_once(
    parts: list[list[tuple[int, int, int]]], side: Side
) -> None:
    query, answer = index(parts).pairs(every_query(side))
    found = list(zip(query.tolist(), answer.tolist(), strict=True))
    truth = [(i, each) for i, answers in enumerate(sets(parts, side)) for each in sorted(answers)]
    assert found == truth


@given(parts=splits, side=st.sampled_from(SIDES))
@steady
def test_counts_are_those_of_the_different_answers(
    parts: list[list[tuple[int, int, int]]], side: Side
) -> None:
    counts = index(parts).counts(every_query(side))
    assert counts.tolist() == [len(answers) for answers in sets(parts, side)]


@given(parts=splits, side=st.sampled_from(SIDES))
@steady
def test_contains_finds_every_answer_and_nothing_else(
    parts: list[list[tuple[int, int, int]]], side: Side
) -> None:
    candidates = torch.arange(N - 1, -1, -1).expand(len(EVERY), N)
    found = index(parts).contains(every_query(side), candidates)
    for row, answers in zip(found.tolist(), sets(parts, side), strict=True):
        assert [each for each in range(N) if row[N - 1 - each]] == sorted(answers)


def test_a_triple_given_twice_counts_once() -> None:
    known = index([[(0, 0, 1), (0, 0, 1)], [(0, 0, 1)]])
    queries = Queries.of(torch.tensor([[0, 0, 1]]), "tail")
    assert known.counts(queries).tolist() == [1]
    assert known.pairs(queries)[1].tolist() == [1]


def test_an_unknown_query_has_no_answers() -> None:
    known = index([[(2, 1, 3)]])
    # Below, between and above the only two keys there are.
    for entity, relation in ((0, 0), (5, 1), (5, 2)):
        queries = Queries.for_side("head", *torch.tensor([[entity], [relation], [0]]))
        assert known.counts(queries).tolist() == [0]
        assert [each.tolist() for each in known.pairs(queries)] == [[], []]
        assert not known.contains(queries, torch.arange(N).unsqueeze(0)).any()


def test_the_two_sides_do_not_mix() -> None:
    known = index([[(2, 1, 3)]])
    queries = [Queries.for_side(side, *torch.tensor([[2], [1], [0]])) for side in SIDES]
    assert [known.counts(each).tolist() for each in queries] == [[1], [0]]


def test_an_empty_batch_has_no_pairs() -> None:
    known = index([[(2, 1, 3)]])
    queries = Queries.for_side("tail", *torch.zeros(3, 0, dtype=torch.int64))
    assert known.counts(queries).shape == (0,)
    assert [len(each) for each in known.pairs(queries)] == [0, 0]
    assert known.contains(queries, torch.zeros(0, 4, dtype=torch.int64)).shape == (0, 4)


@pytest.mark.parametrize("side, column", [("tail", 2), ("head", 0)])
def test_keys_beyond_32_bits_do_not_overflow(side: Side, column: int) -> None:
    # Keys reach 2 · R · N = 6e10, as in a graph of many entities and relations.
    n, r = 10_000_000, 3_000
    triple = np.array([[n - 1, r - 1, n - 2]])
    known = KnownAnswers.of([triple], n, r)
    queries = Queries.of(torch.from_numpy(triple), side)
    assert known.pairs(queries)[1].tolist() == [triple[0, column]]
