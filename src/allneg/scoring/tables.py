"""All the parameters: a table of entity rows and a table of relation rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from allneg.graph.queries import Queries
from allneg.models import Model
from allneg.scoring.far import Fetched, Late, fetch, fetched_rows, look_far
from allneg.scoring.near import Few, Look, LookSized, Size
from allneg.scoring.shard import Shard

MULTIPLE = 64  # of rows that are compared at a time: odd widths make matrix products slow
_ROWS_A_SEED = 4096  # rows filled by one generator: first values depend on the seed and the row


@dataclass(frozen=True)
class Looked:
    """The rows that a batch of queries is about."""

    entity: Tensor  # (B, W)
    relation: Tensor  # (B, V)
    answer: Tensor  # (B, W)
    sizes: Tensor | None = None  # (B,): of the three together, where they were looked up too


class Tables(nn.Module):
    """The rows of entities and relations.

    With `reciprocal`, a head query has a relation row of its own, `n_relations` further
    down; nobody outside sees those doubled ids. Gradients of rows are added up by `add_rows`
    or `F.embedding`, which can be told to keep to one order; indexing with [] cannot.
    """

    def __init__(self, entities: Tensor, relations: Tensor, shard: Shard, reciprocal: bool) -> None:
        super().__init__()
        self.entities = nn.Parameter(entities)  # float (n, W), or more rows: padding
        self.relations = nn.Parameter(relations)  # float (R, V), or (2R, V) when reciprocal
        self.shard = shard
        self.reciprocal = reciprocal
        self.rounded: Tensor | None = None  # the entities as bfloat16, where they are kept so too
        self._rounded_at = -1  # the entities' version then
        self._late: Late | None = None  # gradients of looked-up rows

    @classmethod
    def start(
        cls, model: Model, n_relations: int, shard: Shard, reciprocal: bool, seed: int
    ) -> Tables:
        """New tables whose first values depend on the seed and the row alone."""
        rows = n_relations * (2 if reciprocal else 1)
        entities = torch.empty(len(shard), model.entity_width)
        relations = torch.empty(rows, model.relation_width)
        _fill(entities, shard.start, (seed, 0), model.start_entities)
        _fill(relations, 0, (seed, 1), model.start_relations)
        return cls(entities, relations, shard, reciprocal)

    def padded(self, multiple: int) -> Tables:
        """The same tables with zero rows after the entities, up to a multiple.

        Matrix products run at full rate only over such widths. The padding stays zero and
        reaches neither softmax nor ranks nor files.
        """
        more = -len(self.shard) % multiple
        entities = F.pad(self.entities.detach()[: len(self.shard)], (0, 0, 0, more))
        return Tables(entities, self.relations.detach(), self.shard, self.reciprocal)

    @property
    def n_relations(self) -> int:
        return len(self.relations) // (2 if self.reciprocal else 1)

    @property
    def device(self) -> torch.device:
        return self.entities.device

    def rows(self, entity: Tensor) -> Tensor:
        """Entity rows: (B,) -> (B, W), or (B, K) -> (B, K, W); from afar, without a gradient."""
        if self.shard.world.size == 1:
            return F.embedding(entity, self.entities)
        return fetched_rows(self.entities, entity, self.shard)

    def held_rows(self, entity: Tensor) -> Tensor:
        """As `rows`, of entities whose rows are here; of others, any row that is."""
        if self.shard.world.size > 1:
            entity = self.shard.local(entity)
        out: Tensor = Few.apply(self.entities, entity)  # type: ignore[no-untyped-call]
        return out

    def relation_rows(self, queries: Queries) -> Tensor:
        """The relation row of each query: (B, V)."""
        out: Tensor = Few.apply(  # type: ignore[no-untyped-call]
            self.relations, self._relation_ids(queries)
        )
        return out

    def _relation_ids(self, queries: Queries) -> Tensor:
        if not self.reciprocal:
            return queries.relation
        return torch.add(queries.relation, queries.side, alpha=self.n_relations)

    def fetch(self, queries: Queries) -> Fetched | None:
        """Begin to bring the rows of these queries here; None where they are here already."""
        if self.shard.world.size == 1:
            return None
        ids = torch.stack([queries.entity, queries.answer])
        return fetch(self.entities, ids, self.shard)

    def look(
        self,
        queries: Queries,
        fetched: Fetched | None = None,
        widest: int | None = None,
        size: Size | None = None,
    ) -> Looked:
        """The rows of each query, for training, where a gradient to every row is under way.

        `fetched` is what `fetch` gave, and `widest` tells `look_far` whose gradients to add.
        With `size`, rows that are here are measured on the way.
        """
        if self._late is None:
            self._late = []
            # The hook knows nothing of these tables: a ring through it would never be freed.
            self.entities.register_post_accumulate_grad_hook(partial(_settle, self._late))
        if fetched is not None:
            far = look_far(self.entities, fetched, self.shard, widest, self._late)
            return Looked(far[0], self.relation_rows(queries), far[1])
        if size is not None:
            ids = queries.entity, self._relation_ids(queries), queries.answer
            found = LookSized.apply(  # type: ignore[no-untyped-call]
                self.entities, self.relations, ids, size, self._late
            )
            return Looked(*found)
        entity, answer = Look.apply(  # type: ignore[no-untyped-call]
            self.entities, queries.entity, queries.answer, self._late
        )
        return Looked(entity, self.relation_rows(queries), answer)

    def keep_rounded(self) -> None:
        """From here on, have the entities as bfloat16 too; whose step changes them knows of it."""
        self.rounded = torch.empty_like(self.entities, dtype=torch.bfloat16, requires_grad=False)
        self.round_again()

    def round_again(self) -> None:
        """Round the entities anew, where something else than a step has changed them.

        Torch counts its own changes of a tensor; the kernel of a step is not among them.
        """
        if self.rounded is not None and self._rounded_at != self.entities._version:
            self.rounded.copy_(self.entities.detach())
            self._rounded_at = self.entities._version

    def sum_gradients(self, total: Tensor, entities: bool) -> None:
        """Add up what processes with other queries found: a total, gradients of the relations
        and, unless that was done on the way, of the entities.
        """
        tables = [self.entities, self.relations] if entities else [self.relations]
        batch = self.shard.batch
        sums = [batch.begin_sum(each.grad) for each in tables if each.grad is not None]
        for each in [*sums, batch.begin_sum(total)]:
            each.wait()

    def weights(self) -> dict[str, Tensor]:
        """What is saved of the tables."""
        return self.unpadded(dict(self.named_parameters()))

    def unpadded(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of the tables' shapes, such as `entities` or `entities.sum`, without padding."""
        n = len(self.shard)
        return {
            name: each.detach()[:n] if name.startswith("entities") and each.dim() else each.detach()
            for name, each in tensors.items()
        }

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Put back what `weights` gave."""
        self.entities[: len(self.shard)].copy_(weights["entities"])
        self.relations.copy_(weights["relations"])


def _settle(late: Late, entities: Tensor) -> None:
    """Add the gradients of looked-up rows to the table's, once that is there."""
    assert entities.grad is not None
    for add in late:
        add(entities.grad)
    late.clear()


def _fill(
    rows: Tensor, first: int, seed: tuple[int, int], start: Callable[[Tensor, Generator], None]
) -> None:
    """Fill `rows`, which begin at row `first` of their table, block by block."""
    for block in range(first // _ROWS_A_SEED, -(-(first + len(rows)) // _ROWS_A_SEED)):
        values = torch.empty(_ROWS_A_SEED, rows.shape[1])
        start(values, Generator().manual_seed(mixed_seed(*seed, block)))
        offset = block * _ROWS_A_SEED
        low, high = max(first, offset), min(first + len(rows), offset + _ROWS_A_SEED)
        rows[low - first : high - first] = values[low - offset : high - offset]


def mixed_seed(*numbers: int) -> int:
    """One 63-bit seed from several numbers: near numbers give unrelated seeds (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
