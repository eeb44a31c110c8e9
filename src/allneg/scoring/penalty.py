"""What large rows cost: a sum over each question's own three factors."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.powers import power_sums
from allneg.models import Model
from allneg.recipe import Regularizer
from allneg.scoring.near import Size
from allneg.scoring.tables import Looked

_POWERS = {"l2": 2, "n3": 3}
_DURA = {"dura": (1.0, 1.0), "dura-w": (0.5, 1.5)}  # weights of rows alone and times the relation


def penalties(model: Model, looked: Looked, regularizer: Regularizer) -> Tensor:
    """Each question's penalty, weighted: (B,).

    `l2` sums the squared moduli of the head's, relation's and tail's coordinates, `n3` their
    cubes (Lacroix et al., 2018). `dura` (Zhang et al., 2020) sums those of the entities and of
    their products with the relation; `dura-w` halves the first and adds half to the second.
    A rare entity is penalised as rarely as it is asked about.
    """
    if looked.sizes is not None:
        return regularizer.weight * looked.sizes
    if regularizer.name in _POWERS:
        power = _POWERS[regularizer.name]
        entity = power_sums(model.place(looked.entity), model.entity_axes, power)
        total = entity + power_sums(model.place(looked.answer), model.entity_axes, power)
        if model.relation_axes:
            total = total + power_sums(looked.relation, model.relation_axes, power)
        return regularizer.weight * total
    entity = _squares(looked.entity, model.entity_axes)
    answer = _squares(looked.answer, model.entity_axes)
    relation = _squares(looked.relation, model.relation_axes)
    alone, turned = _DURA[regularizer.name]
    return regularizer.weight * ((entity + answer) * (alone + turned * relation)).sum(1)


def row_size(model: Model, regularizer: Regularizer) -> Size | None:
    """The size of whole rows that `penalties` sums; None where it sums something else."""
    if regularizer.name not in _POWERS or model.bias or not model.relation_axes:
        return None
    return Size(_POWERS[regularizer.name], model.entity_axes, model.relation_axes)


def _squares(rows: Tensor, axes: int) -> Tensor:
    """Squared modulus of each coordinate: (B, axes · D) -> (B, D)."""
    squares: Tensor = rows.square().unflatten(1, (axes, -1)).sum(1)
    return squares
