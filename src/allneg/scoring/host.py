"""Tables in the host's memory, for a device that has no room for them."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.graph.queries import Queries
from allneg.scoring.far import Fetched
from allneg.scoring.near import Size
from allneg.scoring.tables import Looked, Tables


class HostTables(Tables):
    """The rows lie in the host's memory, and so do their gradients and what an optimiser keeps.

    Few rows go to `device` when they are looked up; the whole table goes there a block at a time
    when it is compared (`feed.py`), and the gradients of each block come back. So the device holds
    two blocks, and the optimiser's step is the host's.
    """

    def __init__(self, tables: Tables, device: torch.device) -> None:
        entities = tables.entities.detach()
        if device.type == "cuda":
            entities = entities.pin_memory()  # from which a device copies by itself
        super().__init__(entities, tables.relations.detach(), tables.shard, tables.reciprocal)
        self._used_on = device

    @property
    def device(self) -> torch.device:
        """Where rows are used."""
        return self._used_on

    def rows(self, entity: Tensor) -> Tensor:
        return super().rows(entity.to(self.entities.device)).to(self.device)

    def held_rows(self, entity: Tensor) -> Tensor:
        return super().held_rows(entity.to(self.entities.device)).to(self.device)

    def relation_rows(self, queries: Queries) -> Tensor:
        return super().relation_rows(self._at_home(queries)).to(self.device)

    def look(
        self,
        queries: Queries,
        fetched: Fetched | None = None,
        widest: int | None = None,
        size: Size | None = None,
    ) -> Looked:
        # Rows are measured where they are used.
        looked = super().look(self._at_home(queries), fetched, widest)
        entity, answer = looked.entity.to(self.device), looked.answer.to(self.device)
        return Looked(entity, looked.relation, answer)

    def _at_home(self, queries: Queries) -> Queries:
        home = self.entities.device
        return Queries(
            queries.side.to(home),
            queries.entity.to(home),
            queries.relation.to(home),
            queries.answer.to(home),
        )
