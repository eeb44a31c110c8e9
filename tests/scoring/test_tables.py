"""Initial values depend on the seed and the row; only tables use reciprocal rows."""

from __future__ import annotations

import pytest
import torch

from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS, DistMult, TuckER
from allneg.scoring import Shard, Tables
from allneg.scoring.tables import mixed_seed, padding_multiple

REACH = 4096  # rows that share a generator; shards may begin on both sides of it


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "shard", [Shard(3, 9, 20), Shard(REACH - 6, REACH + 5, 2 * REACH), Shard(0, 1, 20)]
)
def test_a_shard_starts_with_its_rows_of_the_whole(name: str, shard: Shard) -> None:
    model = MODELS[name](dim=3, scale=0.1)
    whole = Tables.create(model, 2, Shard.whole(shard.total), True, seed=4)
    part = Tables.create(model, 2, shard, True, seed=4)
    assert part.entities.shape == (len(shard), model.entity_width)
    assert part.entities.equal(whole.entities[shard.start : shard.stop])
    assert part.relations.equal(whole.relations)


def test_a_row_does_not_depend_on_how_many_follow() -> None:
    model = DistMult(dim=3, scale=0.1)
    few = Tables.create(model, 1, Shard.whole(5), False, seed=4)
    many = Tables.create(model, 7, Shard.whole(REACH + 50), False, seed=4)
    assert few.entities.equal(many.entities[:5])
    assert few.relations.equal(many.relations[:1])


def test_another_seed_table_or_row_has_other_values() -> None:
    model = DistMult(dim=3, scale=0.1)
    tables = Tables.create(model, 2 * REACH, Shard.whole(2 * REACH), False, seed=4)
    other = Tables.create(model, 2, Shard.whole(2), False, seed=5)
    assert not tables.entities[:2].eq(other.entities).any()
    assert not tables.entities[:2].eq(tables.relations[:2]).any()
    # The generator of one span of rows is not that of the next.
    assert not tables.entities[:REACH].eq(tables.entities[REACH:]).any()


def test_reciprocal_tables_have_two_relation_rows_and_count_one() -> None:
    model = DistMult(dim=3, scale=0.1)
    plain = Tables.create(model, 4, Shard.whole(5), False, seed=0)
    both = Tables.create(model, 4, Shard.whole(5), True, seed=0)
    assert plain.n_relations == both.n_relations == 4
    ids = torch.arange(4)
    tails, heads = (Queries.for_side(side, ids, ids, ids) for side in SIDES)
    assert plain.relation_ids(tails).equal(plain.relation_ids(heads))
    tail, head = (both.relation_rows(both.relation_ids(queries)) for queries in (tails, heads))
    assert tail.shape == head.shape == (4, 3)
    # No row serves two relations or two sides.
    assert len(torch.cat([tail, head]).unique(dim=0)) == 8


def test_rows_keep_the_shape_of_their_ids() -> None:
    tables = Tables.create(DistMult(dim=3, scale=0.1), 1, Shard.whole(5), False, seed=0)
    ids = torch.tensor([[4, 0], [2, 2]])
    assert tables.entity_rows(ids).shape == (2, 2, 3)
    assert tables.entity_rows(ids)[0, 0].equal(tables.entities[4])
    assert tables.entity_rows(ids[1]).equal(tables.entities[[2, 2]])


def test_padding_adds_zero_rows_and_nothing_else() -> None:
    tables = Tables.create(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    padded = tables.padded(4)
    assert padded.entities.shape == (8, 3)
    assert padded.entities[:5].equal(tables.entities)
    assert not padded.entities[5:].any()
    assert padded.relations.equal(tables.relations)
    assert (padded.shard, padded.reciprocal) == (tables.shard, tables.reciprocal)
    assert padded.padded(5).entities.equal(tables.entities)


def test_padding_reaches_no_saved_weights() -> None:
    tables = Tables.create(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    padded = tables.padded(4)
    saved = padded.weights()
    assert saved["entities"].equal(tables.entities)
    assert saved["relations"].equal(tables.relations)
    sums = {"entities.sum": torch.ones(8, 3), "relations.sum": torch.ones(4, 3)}
    lengths = {name: len(tensor) for name, tensor in padded.unpadded(sums).items()}
    assert lengths == {"entities.sum": 5, "relations.sum": 4}


def test_loaded_weights_are_those_that_were_saved() -> None:
    model = DistMult(dim=3, scale=0.1)
    saved = Tables.create(model, 2, Shard.whole(5), True, seed=0)
    other = Tables.create(model, 2, Shard.whole(5), True, seed=1).padded(4)
    other.load(saved.weights())
    assert other.entities[:5].equal(saved.entities)
    assert not other.entities[5:].any()
    assert other.relations.equal(saved.relations)


def test_the_bfloat16_copy_follows_a_load_and_every_change_that_torch_makes() -> None:
    tables = Tables.create(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0).padded(4)
    assert tables.bf16_copy is None
    tables.refresh_bf16_copy()
    assert tables.bf16_copy is None
    tables.keep_bf16_copy()
    copy = tables.bf16_copy
    assert copy is not None
    assert copy.equal(tables.entities.bfloat16())
    tables.load(
        Tables.create(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=1).weights()
    )
    assert not copy.equal(tables.entities.bfloat16())
    tables.refresh_bf16_copy()
    assert copy.equal(tables.entities.bfloat16())
    with torch.no_grad():
        tables.entities[2] = 7.0
    tables.refresh_bf16_copy()
    # The same memory, which a captured step reads.
    assert tables.bf16_copy is copy
    assert copy.equal(tables.entities.bfloat16())


def test_gathered_rows_are_leaves_whose_gradients_are_scattered_back() -> None:
    tables = Tables.create(DistMult(dim=3, scale=0.1), 2, Shard.whole(5), True, seed=0)
    queries = Queries.of(torch.tensor([[4, 1, 0], [2, 0, 2]]), "head")
    rows = tables.gather(queries)
    assert rows.entity.equal(tables.entities[[0, 2]])
    assert rows.answer.equal(tables.entities[[4, 2]])
    assert rows.relation.equal(tables.relations[[3, 2]])
    assert rows.relation_ids.tolist() == [3, 2]
    assert rows.shared is None
    assert all(row.is_leaf and row.requires_grad for row in vars(rows).values() if row is not None
               and row.is_floating_point())  # fmt: skip
    tables.scatter(queries.entity, torch.ones(2, 3))
    tables.scatter(torch.tensor([[2, 2], [4, 1]]), torch.ones(2, 2, 3))
    assert tables.entities.grad is not None
    assert tables.entities.grad[:, 0].tolist() == [1, 1, 3, 0, 1]


def test_a_shared_parameter_is_created_saved_and_loaded() -> None:
    model = TuckER(dim=3, scale=0.1)
    tables, other = (Tables.create(model, 2, Shard.whole(5), True, seed) for seed in (0, 1))
    assert tables.shared is not None
    assert other.shared is not None
    assert tables.shared.shape == (3, 3, 3)
    assert tables.shared.std().item() == pytest.approx(3**-0.5, rel=0.5)
    assert not tables.shared.equal(other.shared)
    padded = other.padded(4)
    padded.load(tables.weights())
    assert padded.shared is not None
    assert padded.shared.equal(tables.shared)
    rows = tables.gather(Queries.of(torch.tensor([[4, 1, 0]]), "tail"))
    assert rows.shared is not None
    assert rows.shared.is_leaf
    assert rows.shared.equal(tables.shared)


def test_close_numbers_give_unrelated_seeds() -> None:
    seeds = [mixed_seed(a, b, c) for a in range(8) for b in range(8) for c in range(8)]
    assert len(set(seeds)) == 512
    assert all(0 <= seed < 1 << 63 for seed in seeds)
    # Every bit is set about half of the time.
    shares = [sum(seed >> bit & 1 for seed in seeds) / 512 for bit in range(63)]
    assert 0.4 < min(shares) < max(shares) < 0.6


@pytest.mark.parametrize(
    "n, device, expected",
    [(1000, "cpu", 1000), (1024, "cpu", 1024), (14541, "cpu", 14592), (1000, "cuda", 1024)],
)
def test_large_tables_are_padded_and_small_ones_only_on_a_gpu(
    n: int, device: str, expected: int
) -> None:
    assert n + -n % padding_multiple(n, torch.device(device)) == expected
