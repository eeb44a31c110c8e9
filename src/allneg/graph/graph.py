"""A knowledge graph as ids: three splits of triples over one vocabulary."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.errors import RecipeError, printable
from allneg.graph.categories import relation_categories
from allneg.graph.vocabulary import Vocabulary

Triples: TypeAlias = npt.NDArray[np.int64]  # (n, 3): head, relation, tail

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class Graph:
    """Triples of three splits; every id is a position in `vocabulary`."""

    name: str  # the name of a built-in set, or the last part of the path it was read from
    vocabulary: Vocabulary
    train: Triples  # int64 (n, 3): head, relation, tail
    valid: Triples  # likewise, may be empty
    test: Triples  # likewise, may be empty
    notes: tuple[str, ...] = ()  # what the reader mended or found odd, a line each

    @property
    def n_entities(self) -> int:
        return len(self.vocabulary.entities)

    @property
    def n_relations(self) -> int:
        return len(self.vocabulary.relations)

    def split(self, name: str) -> Triples:
        if name not in SPLITS:
            raise RecipeError(f"there is no split {printable(name)}; there is {', '.join(SPLITS)}")
        return {"train": self.train, "valid": self.valid, "test": self.test}[name]

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Each relation's category, such as `1-n`: (R,)."""
        splits = [self.split(name) for name in SPLITS]
        return relation_categories(splits, self.n_entities, self.n_relations)

    @cached_property
    def seen(self) -> npt.NDArray[np.bool_]:
        """Which entities occur in train: (N,)."""
        mask = np.zeros(self.n_entities, dtype=np.bool_)
        mask[self.train[:, 0]] = True
        mask[self.train[:, 2]] = True
        return mask
