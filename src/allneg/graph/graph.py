"""A knowledge graph as ids: three splits of triples over one vocabulary."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, RecipeError, close_names, printable

Triples: TypeAlias = npt.NDArray[np.int64]  # (n, 3): head, relation, tail

SPLITS = ("train", "valid", "test")
CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
_MANY = 1.5  # heads per tail or tails per head on average, as in Bordes et al. (2013)


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


@dataclass(frozen=True)
class Graph:
    """Triples of three splits. Ids are indices into `vocabulary`."""

    name: str  # of a known dataset, or the last part of the path
    vocabulary: Vocabulary
    train: Triples
    valid: Triples  # may be empty
    test: Triples  # may be empty
    notes: tuple[str, ...] = ()  # what the reader changed or found unusual
    labels: Mapping[str, str] = field(default_factory=dict)  # readable names, by name
    weights: npt.NDArray[np.float32] | None = None  # of the triples of train in the loss

    @property
    def n_entities(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def n_relations(self) -> int:
        return len(self.vocabulary.relations)

    def split(self, name: str) -> Triples:
        if name not in SPLITS:
            raise RecipeError(f"there is no split {printable(name)}; use {', '.join(SPLITS)}")
        return {"train": self.train, "valid": self.valid, "test": self.test}[name]

    def facts(self, *splits: str) -> list[tuple[str, str, str]]:
        """Head, relation and tail by name, of the splits that are named, or of all of them."""
        entities, relations = self.vocabulary.entities, self.vocabulary.relations
        return [
            (entities[head], relations[relation], entities[tail])
            for split in splits or SPLITS
            for head, relation, tail in self.split(split).tolist()
        ]

    def shown(self, name: str) -> str:
        """A name for people to read: with its label, if it has one."""
        label = self.labels.get(name)
        return name if label is None else f"{label} ({name})"

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """The category of each relation, as defined by Bordes et al. (2013): (R,).

        `1-n` means: on average, a head has at least 1.5 tails and a tail has fewer than 1.5
        heads. Averages are over the distinct triples of train, or of all splits for relations
        that are not in train.
        """
        many = self._many_per_entity(self.train)
        if not self.seen_relations.all():
            anywhere = self._many_per_entity(np.concatenate([self.train, self.valid, self.test]))
            many = np.where(self.seen_relations, many, anywhere)
        return tuple(CATEGORIES[number] for number in (2 * many[0] + many[1]).tolist())

    @cached_property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which entities occur in train: (N,)."""
        mask = np.zeros(self.n_entities, dtype=np.bool_)
        mask[self.train[:, 0]] = True
        mask[self.train[:, 2]] = True
        return mask

    @cached_property
    def seen_relations(self) -> npt.NDArray[np.bool_]:
        """Which relations occur in train: (R,)."""
        return np.bincount(self.train[:, 1], minlength=self.n_relations) > 0

    def is_seen(self, triples: Triples) -> npt.NDArray[np.bool_]:
        """Which triples have only entities and relations that occur in train: (n, 3) -> (n,)."""
        head, relation, tail = triples.T
        return np.asarray(self.seen[head] & self.seen_relations[relation] & self.seen[tail])

    @cached_property
    def n_distinct_queries(self) -> int:
        """The number of distinct queries of train, for both sides."""
        ends = (self.train[:, column] for column in (0, 2))
        return sum(len(distinct(end * self.n_relations + self.train[:, 1])) for end in ends)

    @cached_property
    def has_loops(self) -> npt.NDArray[np.bool_]:
        """Which relations link an entity with itself in train: (R,)."""
        loops = self.train[self.train[:, 0] == self.train[:, 2], 1]
        return np.bincount(loops, minlength=self.n_relations) > 0

    def _many_per_entity(self, triples: Triples) -> npt.NDArray[np.bool_]:
        """Whether each relation has many heads per tail, and many tails per head: (2, R)."""
        (keys,) = triple_keys([triples], self.n_entities, self.n_relations)
        if len(distinct(keys)) < len(keys):
            triples = triples[first_indices(keys)]
        relation = triples[:, 1]
        count = np.bincount(relation, minlength=self.n_relations)
        averages = []
        for column in (2, 0):
            pairs = distinct(relation * self.n_entities + triples[:, column])
            entities = np.bincount(pairs // self.n_entities, minlength=self.n_relations)
            averages.append(count / entities.clip(min=1))
        return np.stack(averages) >= _MANY


def triple_keys(
    parts: list[Triples], n_entities: int, n_relations: int
) -> list[npt.NDArray[np.int64]]:
    """One number per triple, equal for equal triples: (n, 3) per part -> (n,) per part."""
    triples = np.concatenate(parts)
    pair, n_pairs = triples[:, 0] * n_entities + triples[:, 2], n_entities * n_entities
    if n_pairs * n_relations > np.iinfo(np.int64).max:
        # The product would overflow. Number only the pairs that occur.
        occurring, pair = np.unique(pair, return_inverse=True)
        n_pairs = len(occurring)
    keys = triples[:, 1] * n_pairs + pair
    return np.split(keys, np.cumsum([len(part) for part in parts])[:-1])


def first_indices(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The index of the first occurrence of each distinct key, ascending."""
    return np.sort(np.unique(keys, return_index=True)[1])


def even_sample(total: int, most: int) -> npt.NDArray[np.int64]:
    """At most `most` indices below `total`, at equal distances."""
    return np.linspace(0, total - 1, min(most, total)).astype(np.int64)


def distinct(keys: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The distinct keys, ascending, in less time than by `np.unique`."""
    ascending: npt.NDArray[np.int64] = np.sort(keys)
    is_new = np.ones(len(keys), dtype=np.bool_)
    is_new[1:] = ascending[1:] != ascending[:-1]
    return ascending[is_new]
