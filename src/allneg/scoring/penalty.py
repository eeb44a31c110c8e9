"""What large rows cost: a sum over each question's own three factors."""

from __future__ import annotations

from torch import Tensor

from allneg.models import Model
from allneg.recipe import Penalty
from allneg.scoring.tables import Looked

_POWERS = {"l2": 1.0, "n3": 1.5}


def penalties(model: Model, looked: Looked, penalty: Penalty) -> Tensor:
    """Each question's penalty, weighted: (B,).

    `l2` sums the squared moduli of the head's, relation's and tail's coordinates, `n3` their
    cubes (Lacroix et al., 2018). A rare entity is penalised as rarely as it is asked about.
    """
    factors = (
        model.entity_squares(looked.entity),
        model.relation_squares(looked.relation),
        model.entity_squares(looked.answer),
    )
    sums = [squares.pow(_POWERS[penalty.name]).sum(1) for squares in factors]
    return penalty.weight * (sums[0] + sums[1] + sums[2])
