"""A shard is a span of rows; a single process holds them all, and its sums do nothing."""

from __future__ import annotations

import pytest
import torch

from allneg.errors import RecipeError, RunError
from allneg.scoring import Shard
from allneg.scoring.distributed import NO_GROUP, SINGLE_PROCESS, Group, World


def test_a_single_process_holds_every_row() -> None:
    assert Shard.whole(20) == Shard(0, 20, 20) == Shard.of(20, SINGLE_PROCESS)
    assert len(Shard.whole(20)) == 20


def test_a_shard_is_as_long_as_its_span() -> None:
    assert len(Shard(3, 9, 20)) == 6


@pytest.mark.parametrize("total, size", [(20, 3), (3, 3), (7, 4), (2, 5), (0, 2)])
def test_parts_are_even_and_cover_everything(total: int, size: int) -> None:
    groups = [Group(rank, size) for rank in range(size)]
    spans = [group.part(total) for group in groups]
    assert [i for start, stop in spans for i in range(start, stop)] == list(range(total))
    lengths = [stop - start for start, stop in spans]
    assert max(lengths) - min(lengths) <= 1
    assert max(lengths) == groups[0].largest_part(total)


def test_a_shard_knows_which_rows_it_holds() -> None:
    shard, ids = Shard(3, 6, 9), torch.tensor([2, 3, 5, 6])
    assert shard.holds(ids).tolist() == [False, True, True, False]
    assert shard.local(ids)[1:3].tolist() == [0, 2]
    assert shard.local(ids).max() <= 2  # a valid row, also for entities of other processes


def test_other_processes_have_the_columns_of_other_entities() -> None:
    whole, part = Shard.whole(9), Shard(3, 6, 9, World(rows=Group(1, 3)))
    queries, ids = torch.tensor([0, 0, 1, 1]), torch.tensor([2, 3, 5, 6])
    assert part.columns(ids).tolist() == [-1, 0, 2, -1]
    assert [column.tolist() for column in part.held_pairs((queries, ids))] == [[0, 1], [0, 2]]
    assert whole.columns(ids).equal(ids)
    assert [column.tolist() for column in whole.held_pairs((queries, ids))] == [
        queries.tolist(),
        ids.tolist(),
    ]


def test_more_processes_than_entities_are_refused() -> None:
    world = World(rows=Group(0, 4), everyone=Group(0, 4))
    with pytest.raises(RecipeError, match="3 entities are too few for 4 processes"):
        Shard.of(3, world)


def test_a_single_process_has_nothing_to_sum() -> None:
    numbers = torch.arange(3.0)
    assert NO_GROUP.sum(numbers).equal(torch.arange(3.0))
    assert NO_GROUP.max(numbers).equal(torch.arange(3.0))
    assert NO_GROUP.broadcast(numbers).equal(torch.arange(3.0))
    assert NO_GROUP.all_gather(numbers).equal(torch.arange(3.0).unsqueeze(0))
    assert SINGLE_PROCESS.is_rank_zero
    assert SINGLE_PROCESS.max(7) == 7
    assert SINGLE_PROCESS.broadcast("a name") == "a name"
    assert SINGLE_PROCESS.gather_texts("a name") == ["a name"]


def test_a_single_process_raises_its_own_error() -> None:
    def fail() -> None:
        raise RunError("mine")

    with pytest.raises(RunError, match="mine"):
        SINGLE_PROCESS.raise_together(fail)
    assert SINGLE_PROCESS.raise_together(lambda: 3) == 3
