"""The runs that a run was made from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from allneg.errors import counted
from allneg.graph.graph import Graph

Touch = Literal["new", "neighbours", "all", "start"]
TOUCH = get_args(Touch)


@dataclass(frozen=True)
class Parent:
    """The run whose rows a run began with, and which of them it trains.

    The first entities, relations and triples of train are those of the parent, with their ids.
    After `train --from`, ids are other ones: `touch` is start, and the numbers are 0.
    """

    name: str  # its folder
    id: str | None  # as in `Run.id`
    touch: Touch
    entities: int = 0
    relations: int = 0
    train: int = 0
    removed: tuple[int, ...] = ()  # entities of the removed facts

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"removed": list(self.removed)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """A parent in run.json; a `TypeError`, `ValueError` or `KeyError` if it is none."""
        parent = cls(**content | {"removed": tuple(content["removed"])})
        counts = (parent.entities, parent.relations, parent.train, *parent.removed)
        are_counts = all(type(n) is int and n >= 0 for n in counts)
        if parent.touch not in TOUCH or not isinstance(parent.name, str) or not are_counts:
            raise ValueError("not a parent")
        if max(parent.removed, default=-1) >= parent.entities:
            raise ValueError("an entity that the parent does not have")
        return parent

    def in_words(self) -> str:
        if self.touch == "start":
            return f"{self.name}, whose rows this one began with (train --from)"
        about = f"{counted(self.entities, 'entity')}, {counted(self.train, 'fact')}"
        return f"{self.name} ({about}), extended with --touch {self.touch}"

    def touched(self, graph: Graph) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Which entities and which relations are trained: (N,), (R,)."""
        entities = np.arange(graph.n_entities) >= self.entities
        relations = np.arange(graph.n_relations) >= self.relations
        if self.touch == "neighbours":
            entities[graph.train[self.train :, [0, 2]]] = True
            entities[list(self.removed)] = True
        if self.touch in ("all", "start"):
            entities[:], relations[:] = True, True
        return entities, relations

    def facts(self, graph: Graph) -> npt.NDArray[np.int64]:
        """The triples of train with a trained row, by their index."""
        entities, relations = self.touched(graph)
        head, relation, tail = graph.train.T
        return np.flatnonzero(entities[head] | relations[relation] | entities[tail])
