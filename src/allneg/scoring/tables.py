"""All parameters: entity rows, relation rows and, for some models, a shared tensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from allneg.graph.queries import Queries
from allneg.kernels.fused import scatter_add
from allneg.models import Model
from allneg.scoring.distributed import Shard

MULTIPLE = 64  # padded tables have a multiple of this many rows; odd sizes slow products down
_FEW_ROWS = 1024  # on a CPU, products with fewer rows are not slower
ROWS_PER_SEED = 4096  # rows filled by one generator: values depend only on the seed and the row


@dataclass(frozen=True)
class BatchRows:
    """The rows of a batch of queries, as leaves of autograd."""

    relation_ids: Tensor  # int64 (B,): rows in the relation table
    entity: Tensor  # (B, W)
    relation: Tensor  # (B, V)
    answer: Tensor  # (B, W)
    shared: Tensor | None = None  # the model's shared tensor


class Tables(nn.Module):
    """The rows of entities and relations.

    With `reciprocal`, a head query has its own relation row, `n_relations` further down; only this
    class uses these doubled ids. With `device`, entity rows stay where they are (in host
    memory) and are used on that device.
    """

    def __init__(
        self,
        entities: Tensor,
        relations: Tensor,
        shard: Shard,
        reciprocal: bool,
        shared: Tensor | None = None,
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.entities = nn.Parameter(entities)  # float (n, W), and padding rows
        self.relations = nn.Parameter(relations)  # float (R, V), or (2R, V) when reciprocal
        self.shared = None if shared is None else nn.Parameter(shared)
        self.shard = shard
        self.is_sharded = shard.is_part
        self.reciprocal = reciprocal
        self.n_relations = len(relations) // (2 if reciprocal else 1)
        self.bf16_copy: Tensor | None = None  # of the entities, where a plan keeps one
        self._copied_version = -1  # the entities' version at the last copy
        self._device = device

    @classmethod
    def create(
        cls, model: Model, n_relations: int, shard: Shard, reciprocal: bool, seed: int | None
    ) -> Tables:
        """New tables whose initial values depend only on the seed and the row; None: all are 0."""
        rows = n_relations * (2 if reciprocal else 1)
        entities = torch.zeros(len(shard), model.entity_width)
        relations = torch.zeros(rows, model.relation_width)
        shared = None if model.shared_shape is None else torch.zeros(model.shared_shape)
        if seed is not None:
            _fill(entities, shard.start, (seed, 0), model.init_entities)
            _fill(relations, 0, (seed, 1), model.init_relations)
            if shared is not None:
                model.init_shared(shared, Generator().manual_seed(mixed_seed(seed, 4)))
        return cls(entities, relations, shard, reciprocal, shared)

    def padded(self, multiple: int) -> Tables:
        """The same tables with zero rows after the entities, up to a multiple.

        The padding stays zero and reaches neither losses nor ranks nor files.
        """
        more = -len(self.shard) % multiple
        entities = self.entities.detach()[: len(self.shard)]
        return self.replaced({"entities": F.pad(entities, (0, 0, 0, more))})

    def on_host(self, device: torch.device) -> Tables:
        """The same tables in host memory, used on `device`."""
        entities = self.entities.detach()
        if device.type == "cuda":
            entities = entities.pin_memory()  # the device copies from it by itself
        return self.replaced({"entities": entities}, device)

    def replaced(self, tensors: Mapping[str, Tensor], device: torch.device | None = None) -> Tables:
        """Tables like these with other values for some of them, which are not copied."""
        own = {name: table.detach() for name, table in self.named_parameters()}
        new = {**own, **tensors}
        return Tables(
            new["entities"],
            new["relations"],
            self.shard,
            self.reciprocal,
            new.get("shared"),
            device or self._device,
        )

    @property
    def device(self) -> torch.device:
        """Where rows are used."""
        return self._device or self.entities.device

    def relation_ids(self, queries: Queries) -> Tensor:
        """The row in `relations` of each query: (B,)."""
        if not self.reciprocal:
            return queries.relation
        return torch.add(queries.relation, queries.side, alpha=self.n_relations)

    def entity_rows(self, ids: Tensor) -> Tensor:
        """Copies of entity rows from whichever process holds them: (…) -> (…, W)."""
        if self.is_sharded:
            # A process gives the rows it holds and zeros for the others: their sum is exact.
            rows = self.held_rows(ids).masked_fill_(~self.shard.holds(ids).unsqueeze(-1), 0.0)
            return self.shard.rows.sum(rows)
        return F.embedding(ids.to(self.entities.device), self.entities.detach()).to(ids.device)

    def held_rows(self, ids: Tensor) -> Tensor:
        """Copies of the rows this process holds; for other entities, any row: (…) -> (…, W)."""
        local = self.shard.local(ids) if self.is_sharded else ids
        return F.embedding(local.to(self.entities.device), self.entities.detach()).to(ids.device)

    def relation_rows(self, ids: Tensor) -> Tensor:
        """Copies of relation rows, by `relation_ids`: (B,) -> (B, V)."""
        return F.embedding(ids.to(self.relations.device), self.relations.detach()).to(ids.device)

    def gather(self, queries: Queries) -> BatchRows:
        """The rows of a batch, whose gradients `scatter` adds to those of the tables."""
        relation_ids = self.relation_ids(queries)
        shared = None if self.shared is None else self.shared.detach().clone().to(self.device)
        return BatchRows(
            relation_ids,
            self.entity_rows(queries.entity).requires_grad_(),
            self.relation_rows(relation_ids).requires_grad_(),
            self.entity_rows(queries.answer).requires_grad_(),
            None if shared is None else shared.requires_grad_(),
        )

    def scatter(self, ids: Tensor, rows: Tensor) -> None:
        """Add gradients of entity rows to the table's, where this process holds the rows."""
        if self.entities.grad is None:
            self.entities.grad = torch.zeros_like(self.entities)
        ids, rows = ids.flatten(), rows.flatten(0, -2)
        if self.is_sharded:
            rows = rows.masked_fill(~self.shard.holds(ids).unsqueeze(1), 0.0)
            ids = self.shard.local(ids)
        home = self.entities.device
        scatter_add(self.entities.grad, ids.to(home), rows.to(home))

    def keep_bf16_copy(self) -> None:
        """Also keep the entities as bfloat16; the optimizer's step updates this copy."""
        self.bf16_copy = torch.empty_like(self.entities, dtype=torch.bfloat16, requires_grad=False)
        self.refresh_bf16_copy()

    def refresh_bf16_copy(self) -> None:
        """Copy the entities again if something other than an optimizer's step has changed them.

        PyTorch counts its own changes of a tensor; the fused AdaGrad step is not among them.
        """
        if self.bf16_copy is not None and self._copied_version != self.entities._version:
            self.bf16_copy.copy_(self.entities.detach())
            self._copied_version = self.entities._version

    def weights(self) -> dict[str, Tensor]:
        """The tensors that are saved."""
        return self.unpadded(dict(self.named_parameters()))

    def unpadded(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors of the tables' shapes, such as `entities` or `entities.sum`, without padding."""
        n = len(self.shard)
        return {
            name: tensor.detach()[:n]
            if name.startswith("entities") and tensor.dim()
            else tensor.detach()
            for name, tensor in tensors.items()
        }

    @torch.no_grad()
    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Restore what `weights` gave."""
        for name, parameter in self.named_parameters():
            parameter[: len(weights[name])].copy_(weights[name])


def padding_multiple(n: int, device: torch.device) -> int:
    """The number of rows that a table of `n` rows is padded to is a multiple of this."""
    return 1 if device.type == "cpu" and n < _FEW_ROWS else MULTIPLE


def _fill(
    rows: Tensor, first: int, seed: tuple[int, int], init: Callable[[Tensor, Generator], None]
) -> None:
    """Fill `rows`, which begin at row `first` of their table, some blocks at the same time."""

    def fill(block: int) -> None:
        values = torch.empty(ROWS_PER_SEED, rows.shape[1])
        init(values, Generator().manual_seed(mixed_seed(*seed, block)))
        offset = block * ROWS_PER_SEED
        low, high = max(first, offset), min(first + len(rows), offset + ROWS_PER_SEED)
        rows[low - first : high - first] = values[low - offset : high - offset]

    blocks = range(first // ROWS_PER_SEED, -(-(first + len(rows)) // ROWS_PER_SEED))
    with ThreadPoolExecutor(max(1, min(len(blocks), torch.get_num_threads()))) as pool:
        list(pool.map(fill, blocks))  # raises an error of a thread


def mixed_seed(*numbers: int) -> int:
    """One 63-bit seed from several numbers: close numbers give unrelated seeds (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
