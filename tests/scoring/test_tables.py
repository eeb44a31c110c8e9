"""First values depend on the seed and the row; reciprocal rows stay inside."""

from __future__ import annotations

import pytest
import torch

from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS, DistMult
from allneg.scoring import Shard, Tables
from allneg.scoring.tables import mixed_seed

REACH = 4096  # rows that share a generator: spans on both sides of it must agree too


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "shard", [Shard(3, 9, 20), Shard(REACH - 6, REACH + 5, 2 * REACH), Shard(0, 1, 20)]
)
def test_a_shard_starts_with_its_rows_of_the_whole(name: str, shard: Shard) -> None:
    model = MODELS[name](dim=3, scale=0.1)
    whole = Tables.start(model, 2, Shard.whole(shard.total), True, seed=4)
    part = Tables.start(model, 2, shard, True, seed=4)
    assert part.entities.shape == (len(shard), model.entity_width)
    assert part.entities.equal(whole.entities[shard.start : shard.stop])
    assert part.relations.equal(whole.relations)


def test_a_row_does_not_depend_on_how_many_follow() -> None:
    model = DistMult(dim=3, scale=0.1)
    few = Tables.start(model, 1, Shard.whole(5), False, seed=4)
    many = Tables.start(model, 7, Shard.whole(REACH + 50), False, seed=4)
    assert few.entities.equal(many.entities[:5])
    assert few.relations.equal(many.relations[:1])


def test_another_seed_table_or_row_has_other_values() -> None:
    model = DistMult(dim=3, scale=0.1)
    tables = Tables.start(model, 2 * REACH, Shard.whole(2 * REACH), False, seed=4)
    other = Tables.start(model, 2, Shard.whole(2), False, seed=5)
    assert not tables.entities[:2].eq(other.entities).any()
    assert not tables.entities[:2].eq(tables.relations[:2]).any()
    # The generator of one span of rows is not that of the next.
    assert not tables.entities[:REACH].eq(tables.entities[REACH:]).any()


def test_reciprocal_tables_have_two_relation_rows_and_count_one() -> None:
    model = DistMult(dim=3, scale=0.1)
    plain = Tables.start(model, 4, Shard.whole(5), False, seed=0)
    both = Tables.start(model, 4, Shard.whole(5), True, seed=0)
    assert plain.n_relations == both.n_relations == 4
    each = torch.arange(4)
    tails, heads = (Queries.asking(side, each, each, each) for side in SIDES)
    assert plain.relation_rows(tails).equal(plain.relation_rows(heads))
    tail, head = both.relation_rows(tails), both.relation_rows(heads)
    assert tail.shape == head.shape == (4, 3)
    # No row serves two relations or two sides.
    assert len(torch.cat([tail, head]).unique(dim=0)) == 8


def test_rows_keep_the_shape_of_what_is_asked() -> None:
    tables = Tables.start(DistMult(dim=3, scale=0.1), 1, Shard.whole(5), False, seed=0)
    ids = torch.tensor([[4, 0], [2, 2]])
    assert tables.rows(ids).shape == (2, 2, 3)
    assert tables.rows(ids)[0, 0].equal(tables.entities[4])
    assert tables.rows(ids[1]).equal(tables.entities[[2, 2]])


def test_padding_adds_zero_rows_and_nothing_else() -> None:
    tables = Tables.start(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    padded = tables.padded(4)
    assert padded.entities.shape == (8, 3)
    assert padded.entities[:5].equal(tables.entities)
    assert not padded.entities[5:].any()
    assert padded.relations.equal(tables.relations)
    assert (padded.shard, padded.reciprocal) == (tables.shard, tables.reciprocal)
    assert padded.padded(5).entities.equal(tables.entities)


def test_padding_reaches_no_saved_weights() -> None:
    tables = Tables.start(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    padded = tables.padded(4)
    saved = padded.weights()
    assert saved["entities"].equal(tables.entities)
    assert saved["relations"].equal(tables.relations)
    memory = {"entities.sum": torch.ones(8, 3), "relations.sum": torch.ones(4, 3)}
    assert {name: len(each) for name, each in padded.unpadded(memory).items()} == {
        "entities.sum": 5,
        "relations.sum": 4,
    }


def test_loaded_weights_are_those_that_were_saved() -> None:
    model = DistMult(dim=3, scale=0.1)
    saved = Tables.start(model, 2, Shard.whole(5), True, seed=0)
    other = Tables.start(model, 2, Shard.whole(5), True, seed=1).padded(4)
    other.load(saved.weights())
    assert other.entities[:5].equal(saved.entities)
    assert not other.entities[5:].any()
    assert other.relations.equal(saved.relations)


def test_rounded_entities_follow_a_load_and_every_change_that_torch_makes() -> None:
    tables = Tables.start(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0).padded(4)
    assert tables.rounded is None
    tables.round_again()
    assert tables.rounded is None
    tables.keep_rounded()
    rounded = tables.rounded
    assert rounded is not None
    assert rounded.equal(tables.entities.bfloat16())
    tables.load(Tables.start(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=1).weights())
    assert not rounded.equal(tables.entities.bfloat16())
    tables.round_again()
    assert rounded.equal(tables.entities.bfloat16())
    with torch.no_grad():
        tables.entities[2] = 7.0
    tables.round_again()
    # The same memory, which a captured step reads.
    assert tables.rounded is rounded
    assert rounded.equal(tables.entities.bfloat16())


def test_looked_up_rows_are_those_of_each_question() -> None:
    tables = Tables.start(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    queries = Queries.of(torch.tensor([[4, 1, 0], [2, 0, 2]]), "head")
    looked = tables.look(queries)
    assert looked.entity.equal(tables.entities[[0, 2]])
    assert looked.answer.equal(tables.entities[[4, 2]])
    assert looked.relation.equal(tables.relations[[3, 2]])


def test_near_numbers_mix_to_seeds_that_share_nothing() -> None:
    seeds = [mixed_seed(a, b, c) for a in range(8) for b in range(8) for c in range(8)]
    assert len(set(seeds)) == 512
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    # Every bit is set about half of the time.
    shares = [sum(seed >> bit & 1 for seed in seeds) / 512 for bit in range(63)]
    assert 0.4 < min(shares) < max(shares) < 0.6
