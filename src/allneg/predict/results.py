"""Answers as lists of plain objects that can become tables of pandas or Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from allneg.errors import extra

if TYPE_CHECKING:
    import pandas
    import pyarrow

T = TypeVar("T")


class Results(list[T]):
    """A list of results of one kind."""

    def __init__(self, kind: type[T], items: Iterable[T] = ()) -> None:
        super().__init__(items)
        self._columns = [field.name for field in fields(kind)]  # type: ignore[arg-type]

    def to_pandas(self) -> pandas.DataFrame:
        """A data frame with a row per result; needs pandas."""
        with extra("tables", "to_pandas"):
            import pandas
        return pandas.DataFrame(self._by_column())

    def to_arrow(self) -> pyarrow.Table:
        """An Arrow table with a row per result; needs pyarrow."""
        with extra("tables", "to_arrow"):
            import pyarrow
        return pyarrow.table(self._by_column())

    def _by_column(self) -> dict[str, list[Any]]:
        return {name: [getattr(item, name) for item in self] for name in self._columns}


@dataclass(frozen=True)
class Prediction:
    """One answer to a query."""

    entity: str
    score: float
    share: float  # the softmax of the scores over all entities; not a probability of being right
    known: str | None  # the split that holds the fact; None for a new one
    calibrated: float | None = None  # how often such an answer is right on valid

    @property
    def answer(self) -> str:
        return self.entity

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Answers:
    """The best answers to one query."""

    predictions: Results[Prediction]
    logsumexp: float  # of the scores of all entities that are no answers in train


@dataclass(frozen=True)
class RelationPrediction:
    """One relation that may hold between two entities."""

    calibrated: ClassVar[None] = None  # there is no calibration of relations
    relation: str
    score: float
    share: float  # the softmax of the scores over all relations
    known: str | None  # the split that holds the fact; None for a new one

    @property
    def answer(self) -> str:
        return self.relation

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))


@dataclass(frozen=True)
class Neighbour:
    """An entity with a similar vector."""

    entity: str
    similarity: float  # the cosine of both vectors, without biases

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))
