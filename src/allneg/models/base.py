"""What every model is: formulas that turn rows into query rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from torch import Generator, Tensor, nn


@dataclass(frozen=True)
class Model(ABC):
    """Formulas; owns no parameters, sees no ids, devices or processes.

    A model is asked two queries, (head, relation, ?) and (?, relation, tail). Each becomes
    a query row, and `compare` gives the query's score with any entity rows, so that both
    queries of one triple get the same score.
    """

    dim: int  # coordinates a row; complex ones where the model says so
    scale: float  # size of the first values
    norm: int = 1  # of the distance, for the models that have one
    squared: bool = False  # leave out the root of norm 2
    bias: bool = False  # a number an entity, added to the squared distance's scores

    entity_parts: ClassVar[int] = 1  # an entity row is so many times `dim` wide
    relation_parts: ClassVar[int] = 1  # likewise a relation row
    entity_axes: ClassVar[int] = 1  # of a coordinate: 2 where it is complex, in parts of its own
    relation_axes: ClassVar[int] = 1  # likewise; 0 for an angle, which has no size

    @property
    def kernel(self) -> str:
        """The kernel that `compare` calls."""
        return "dot"

    @property
    def entity_width(self) -> int:
        return self.entity_parts * self.dim

    @property
    def relation_width(self) -> int:
        return self.relation_parts * self.dim

    @abstractmethod
    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """The query of (head, relation, ?): (B, W), (B, V) -> (B, W)."""

    @abstractmethod
    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        """The query of (?, relation, tail): (B, W), (B, V) -> (B, W)."""

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        """The query of (head, ?, tail), whose products with relation rows are scores.

        Of the models whose score is a sum of products; the others have none.
        """
        raise TypeError(f"{type(self).__name__} has no relation query")

    @abstractmethod
    def compare(self, query: Tensor, entities: Tensor) -> Tensor:
        """Scores: (B, W), (N, W) -> (B, N), or with each query's own rows (B, K, W) -> (B, K)."""

    def start_entities(self, rows: Tensor, generator: Generator) -> None:
        """Fill new entity rows."""
        nn.init.normal_(rows, std=self.scale, generator=generator)

    def start_relations(self, rows: Tensor, generator: Generator) -> None:
        """Fill new relation rows."""
        nn.init.normal_(rows, std=self.scale, generator=generator)

    def place(self, rows: Tensor) -> Tensor:
        """Entity rows without what is no coordinate, such as a bias: (B, W) -> (B, parts · D)."""
        return rows
