"""The runs that a run was made from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Self, get_args

import numpy as np
import numpy.typing as npt

from allneg.errors import counted
from allneg.graph.graph import Graph
from allneg.recipe import Recipe

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
    replaced: Mapping[str, Any] = field(default_factory=dict)  # its settings, see `original`

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"removed": list(self.removed)}

    @classmethod
    def from_json(cls, content: dict[str, Any]) -> Self:
        """A parent in run.json; a `TypeError`, `ValueError` or `KeyError` if it is none."""
        parent = cls(**content | {"removed": tuple(content["removed"])})
        counts = (parent.entities, parent.relations, parent.train, *parent.removed)
        are_counts = all(type(n) is int and n >= 0 for n in counts)
        is_named = isinstance(parent.name, str) and isinstance(parent.replaced, dict)
        if parent.touch not in TOUCH or not is_named or not are_counts:
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


def original(recipe: Recipe, parents: tuple[Parent, ...]) -> Recipe:
    """A run's recipe without what `extend` or `--from` changed, so that no change is made twice."""
    return recipe.with_settings(parents[-1].replaced) if parents else recipe


def replaced(before: Recipe, changed: Recipe, used: Recipe) -> dict[str, Any]:
    """The settings of a recipe that another one changed, if the recipe that is used kept that."""
    old, new, now = (each.to_settings() for each in (before, changed, used))
    names = [name for name in old if new.get(name) != old[name] and now.get(name) == new.get(name)]
    return {name: old[name] for name in names}
