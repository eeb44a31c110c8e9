"""Triples as queries, and an epoch of them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

from allneg.graph.queries import SIDES, KnownAnswers, Queries, Side, batches


@pytest.fixture
def triples() -> Tensor:
    """int64 (10, 3), the last one twice."""
    rows = torch.randint(6, (9, 3), generator=Generator().manual_seed(0))
    return torch.cat([rows, rows[-1:]])


def as_triples(queries: Queries) -> list[tuple[int, ...]]:
    columns = (queries.entity, queries.relation, queries.answer)
    rows = torch.stack(columns, dim=1).tolist()
    sides = queries.side.tolist()
    return [tuple(each[::-1] if side else each) for side, each in zip(sides, rows, strict=True)]


def test_grouped_batches_hold_every_query_once_with_all_answers() -> None:
    triples = np.array([(0, 0, 1), (0, 0, 2), (3, 0, 1), (0, 1, 2), (0, 1, 2)])
    known = KnownAnswers.of([triples], n_entities=4, n_relations=2)
    found, sizes = [], []
    n_batches, batches = known.batches(2, Generator().manual_seed(0), most=128)
    for queries in batches:
        sizes.append(len(queries))
        single = queries.single()
        columns = single.side, single.entity, single.relation
        found += zip(
            zip(*(column.tolist() for column in columns), strict=True),
            single.answer.tolist(),
            strict=True,
        )
        assert queries[1:].single().answer.equal(queries.answer[queries.group == 1])
    assert sizes == [2, 2, 2]
    assert n_batches == 3
    tails = {((0, h, r), t) for h, r, t in triples.tolist()}
    heads = {((1, t, r), h) for h, r, t in triples.tolist()}
    assert sorted(found) == sorted(tails | heads)
    orders = [
        torch.cat(
            [
                queries.answer
                for queries in known.batches(2, Generator().manual_seed(seed), most=128)[1]
            ]
        )
        for seed in (0, 0, 1)
    ]
    assert orders[0].equal(orders[1])
    assert not orders[0].equal(orders[2])


@pytest.mark.parametrize("most, sizes", [(128, [44, 128, 128]), (299, [1, 299]), (300, [300])])
def test_a_query_with_very_many_answers_is_asked_several_times(most: int, sizes: list[int]) -> None:
    triples = np.array([(0, 0, tail) for tail in range(1, 301)])
    known = KnownAnswers.of([triples], n_entities=301, n_relations=1)
    n_batches, batches = known.batches(1, Generator().manual_seed(0), most)
    tails = [queries for queries in batches if queries.side == 0]
    assert n_batches == 300 + len(sizes)
    assert sorted(len(queries.answer) for queries in tails) == sizes
    assert torch.cat([queries.answer for queries in tails]).sort()[0].tolist() == list(
        range(1, 301)
    )


def test_padding_has_no_weight_and_few_sizes() -> None:
    sizes = set()
    for n in range(1, 2000):
        group = torch.arange(n) // 3
        one = torch.zeros(int(group[-1]) + 1, dtype=torch.int64)
        queries = Queries(one, one, one, torch.arange(n), torch.ones(n), group)
        padded = queries.padded()
        assert padded.answer[:n].equal(queries.answer)
        assert padded.weight.sum() == n
        assert (padded.group.diff() >= 0).all()
        assert len(padded.answer) < n + max(16, n / 8)
        sizes.add(len(padded.answer))
    assert len(sizes) < 70


def test_a_tail_query_has_the_head_and_a_head_query_the_tail() -> None:
    triple = torch.tensor([[3, 1, 4]])
    tail, head = Queries.of(triple, "tail"), Queries.of(triple, "head")
    assert [int(each) for each in (tail.entity, tail.relation, tail.answer)] == [3, 1, 4]
    assert [int(each) for each in (head.entity, head.relation, head.answer)] == [4, 1, 3]


def test_turned_queries_ask_for_the_other_side_of_the_same_triples(triples: Tensor) -> None:
    for side in SIDES:
        queries = Queries.of(triples, side)
        assert (queries.other_side().side != queries.side).all()
        assert as_triples(queries.other_side()) == as_triples(queries)


def test_a_part_is_a_slice(triples: Tensor) -> None:
    part = Queries.of(triples, "head")[2:5]
    assert len(part) == 3
    assert [SIDES[each] for each in part.side] == ["head"] * 3
    assert as_triples(part) == [tuple(each) for each in triples[2:5].tolist()]


@pytest.mark.parametrize("size", [1, 3, 5, 10, 99])
def test_an_epoch_asks_every_triple_once_from_each_side(triples: Tensor, size: int) -> None:
    asked: dict[str, Counter[tuple[int, ...]]] = {side: Counter() for side in SIDES}
    lengths = []
    for queries in batches(triples, size, Generator().manual_seed(1)):
        for side, triple in zip(queries.side.tolist(), as_triples(queries), strict=True):
            asked[SIDES[side]].update([triple])
        lengths.append(len(queries))
    truth = Counter(tuple(each) for each in triples.tolist())
    assert asked == {"tail": truth, "head": truth}
    assert len(lengths) == -(-2 * len(triples) // size)
    assert max(lengths) <= size


def test_a_batch_asks_from_both_sides_and_separates_the_two_queries_of_a_triple() -> None:
    triples = torch.arange(300).view(100, 3)
    first = next(batches(triples, 50, Generator().manual_seed(1)))
    assert 10 < int(first.side.sum()) < 40
    assert len(set(as_triples(first))) > 35


def test_the_seed_decides_the_order_and_an_epoch_moves_it_on(triples: Tensor) -> None:
    def epoch(generator: Generator) -> list[list[tuple[int, ...]]]:
        return [as_triples(each) for each in batches(triples, 4, generator)]

    generator = Generator().manual_seed(1)
    first, second = epoch(generator), epoch(generator)
    assert first == epoch(Generator().manual_seed(1))
    assert first != second
    assert first != epoch(Generator().manual_seed(2))


@pytest.mark.parametrize("side", SIDES)
def test_distinct_queries_have_all_answers_and_know_where_they_were(side: Side) -> None:
    generator = Generator().manual_seed(0)
    queries = Queries.of(torch.randint(4, (60, 3), generator=generator), side)
    found, order = queries.distinct()
    names = list(
        zip(*(x.tolist() for x in (found.side, found.entity, found.relation)), strict=True)
    )
    assert len(set(names)) == len(names) < 60
    assert found.group is not None
    assert found.group.tolist() == sorted(found.group.tolist())
    single = found.single()
    for ours, theirs in zip(vars(single).values(), vars(queries).values(), strict=True):
        assert theirs is None or ours.equal(theirs[order])
    assert sorted(order.tolist()) == list(range(60))
