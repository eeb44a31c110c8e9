"""Entity and relation names and their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from allneg.errors import DataError, close_names, printable


@dataclass(frozen=True)
class Vocabulary:
    """The unique names of a graph. An id is an index into one of the two sequences."""

    entities: Sequence[str]  # a tuple, or mapped from disk
    relations: tuple[str, ...]

    @cached_property
    def entity_ids(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.entities)}

    @cached_property
    def relation_ids(self) -> Mapping[str, int]:
        return {name: number for number, name in enumerate(self.relations)}

    def entity(self, name: str) -> int:
        """The id of an entity. An unknown name is a `DataError` that suggests close names."""
        return _find(name, self.entity_ids, "entity")

    def relation(self, name: str) -> int:
        """The id of a relation. An unknown name is a `DataError` that suggests close names."""
        return _find(name, self.relation_ids, "relation")


def _find(name: str, ids: Mapping[str, int], kind: str) -> int:
    if not isinstance(name, str):
        raise DataError(f"no {kind} is called {name!r}: a name must be a string")
    if name not in ids:
        raise DataError(f"no {kind} is called {printable(name)}{close_names(name, ids)}")
    return ids[name]
