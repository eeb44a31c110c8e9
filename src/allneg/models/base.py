"""Base classes of models: formulas that turn rows into query vectors."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor, nn

from allneg.kernels import Kernel, SquaredL2, dot, l2

# Default settings of distance models.
ADAM = (
    "optimizer.name=adam", "optimizer.schedule=plateau", "optimizer.decay=0.2",
    "optimizer.every=2",
)  # fmt: skip


class Factors(tuple[float, ...]):
    """Values of a setting to try, as multiples of its default."""


@dataclass(frozen=True)
class Model(ABC):
    """Formulas only: a model has no parameters and does not depend on ids, devices or processes.

    A query is (head, relation, ?) or (?, relation, tail). The model turns it into a query
    vector, and `kernel` scores that vector against entity rows, so that both queries of one
    triple get the same score.
    """

    dim: int  # coordinates per row; complex numbers in some models
    scale: float  # standard deviation of the initial values
    norm: int = 1  # of the distance, for distance models
    squared: bool = False  # norm 2 without the square root
    bias: bool = False  # one number per entity, added to squared distances

    defaults: ClassVar[tuple[str, ...]] = ("model.dim=1000",)  # other than the recipe's own
    n3: ClassVar[float] = 1.0  # default weight of N3, times `training.defaults.n3_weight`; or 0
    grouped: ClassVar[bool] = True  # on a GPU, defaults ask each distinct query once
    kernel: ClassVar[Kernel] = dot
    is_distance: ClassVar[bool] = False
    entity_parts: ClassVar[int] = 1  # an entity row is this many times `dim` wide
    relation_parts: ClassVar[int] = 1
    entity_axes: ClassVar[int] = 1  # numbers per coordinate: 2 for complex, 4 for quaternions
    relation_axes: ClassVar[int] = 1  # likewise; 0 for an angle, which is not regularized
    mixes_coordinates: ClassVar[bool] = False  # relations are matrices, not numbers per coordinate
    separate_roles: ClassVar[bool] = False  # `factors` uses different parts of a head and of a tail
    # The values that `allneg tune` tries, the most important setting first.
    tunable: ClassVar[Mapping[str, tuple[float | str, ...]]] = {
        "loss.relation_weight": (0, 0.25, 1, 4),
        "regularizer.name": ("n3", "dura-w"),
        "loss.class_weights": (False, True),
        "regularizer.weight": Factors((0.1, 0.3, 1, 3, 10)),
        "training.batch_size": Factors((0.1, 0.3, 1)),
        "training.average": (0.0, 0.9),
        "model.entity_dropout": (0.0, 0.1, 0.3),
        "model.dim": Factors((0.5, 1, 2)),
        "optimizer.learning_rate": Factors((0.3, 1, 3)),
    }

    @property
    def entity_width(self) -> int:
        return self.entity_parts * self.dim

    @property
    def relation_width(self) -> int:
        return self.relation_parts * self.dim

    @property
    def shared_shape(self) -> tuple[int, ...] | None:
        """The shape of a parameter that all rows share, such as TuckER's core; None for none."""
        return None

    @abstractmethod
    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        """The query vector of (head, relation, ?): (B, W), (B, V) -> (B, W)."""

    @abstractmethod
    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        """The query vector of (?, relation, tail): (B, W), (B, V) -> (B, W)."""

    def relation_query(self, head: Tensor, tail: Tensor) -> Tensor:
        """The vector whose products with (combined) relation rows score (head, ?, tail): (B, V)."""
        raise TypeError(f"{type(self).__name__} has no relation query")

    @classmethod
    def has_relation_query(cls) -> bool:
        return cls.relation_query is not Model.relation_query

    @classmethod
    def supports_relation_query(cls) -> bool:
        """Whether relation rows can be candidates; combined ones are not rows of a table."""
        return cls.has_relation_query() and cls.shared_shape is Model.shared_shape

    def combine(self, relation: Tensor, shared: Tensor) -> Tensor:
        """Relation rows combined with the shared parameter, for models that have one."""
        raise TypeError(f"{type(self).__name__} has no shared parameter")

    def query(self, entity: Tensor, relation: Tensor, side: Tensor, reciprocal: bool) -> Tensor:
        """The query vectors for both sides: `side` is 0 where the tail is asked for, 1 for heads.

        With reciprocal relations, a head query has a separate relation row and uses `tail_query`.
        """
        tail = self.tail_query(entity, relation)
        if reciprocal:
            return tail
        return torch.where(side.unsqueeze(1) == 0, tail, self.head_query(entity, relation))

    def factors(self, head: Tensor, relation: Tensor, tail: Tensor) -> tuple[Tensor, ...]:
        """What regularizers shrink: views (B, axes, D) of the rows, without unused parts.

        A coordinate's size is its norm over the axes. Regularizers also apply this to gradients,
        so it must only slice and reshape.
        """
        if self.bias:
            head, tail = head[:, :-1], tail[:, :-1]
        head = head.unflatten(1, (self.entity_axes, -1))
        tail = tail.unflatten(1, (self.entity_axes, -1))
        if not self.relation_axes:
            return head, tail
        return head, relation.unflatten(1, (self.relation_axes, -1)), tail

    def coordinates(self, rows: Tensor) -> Tensor:
        """Entity rows without their bias: (B, W) -> (B, parts · D)."""
        return rows[:, :-1] if self.bias else rows

    def init_entities(self, rows: Tensor, generator: Generator) -> None:
        """Fill new entity rows in place."""
        nn.init.normal_(rows, std=self.scale, generator=generator)

    def init_relations(self, rows: Tensor, generator: Generator) -> None:
        """Fill new relation rows in place."""
        nn.init.normal_(rows, std=self.scale, generator=generator)

    def init_shared(self, shared: Tensor, generator: Generator) -> None:
        """Fill the new shared parameter in place."""
        nn.init.normal_(shared, std=self.scale, generator=generator)


class DistanceModel(Model):
    """score(h, r, t) = -‖q(h, r) - t‖, where q moves the head by the relation.

    `norm` 1 sums the moduli of the coordinates, 2 is the Euclidean distance. `squared` leaves out
    the square root. With `bias` each entity has one more number b, the last of its row, and
    b(h) + b(t) is added to the score.
    """

    is_distance = True
    norm1_kernel: ClassVar[Kernel]
    tunable: ClassVar[Mapping[str, tuple[float | str, ...]]] = {
        "optimizer.learning_rate": Factors((0.3, 1, 3)),
        "regularizer.weight": Factors((0.1, 0.3, 1, 3, 10)),
        "model.dim": Factors((0.5, 1, 2)),
    }

    @property
    def kernel(self) -> Kernel:  # type: ignore[override]
        if self.norm == 1:
            return self.norm1_kernel
        return SquaredL2(self.bias) if self.squared else l2

    @property
    def entity_width(self) -> int:
        return super().entity_width + self.bias

    @abstractmethod
    def move(self, head: Tensor, relation: Tensor) -> Tensor:
        """The point that a relation moves a head to."""

    @abstractmethod
    def move_back(self, tail: Tensor, relation: Tensor) -> Tensor:
        """The point that a relation moves to this tail."""

    def tail_query(self, head: Tensor, relation: Tensor) -> Tensor:
        if not self.bias:
            return self.move(head, relation)
        return torch.cat([self.move(head[:, :-1], relation), head[:, -1:]], dim=1)

    def head_query(self, tail: Tensor, relation: Tensor) -> Tensor:
        if not self.bias:
            return self.move_back(tail, relation)
        return torch.cat([self.move_back(tail[:, :-1], relation), tail[:, -1:]], dim=1)

    def init_entities(self, rows: Tensor, generator: Generator) -> None:
        super().init_entities(rows, generator)
        if self.bias:
            rows[:, -1] = 0.0
