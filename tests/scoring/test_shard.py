"""A shard is a span of rows."""

from __future__ import annotations

from allneg.scoring import Shard


def test_a_world_of_one_holds_every_row() -> None:
    assert Shard.whole(20) == Shard(0, 20, 20)
    assert len(Shard.whole(20)) == 20


def test_a_shard_is_as_long_as_its_span() -> None:
    assert len(Shard(3, 9, 20)) == 6
