"""What large rows cost: a sum over each question's own three factors."""

from __future__ import annotations

from torch import Tensor

from allneg.models import Model
from allneg.recipe import Penalty
from allneg.scoring.tables import Looked

_POWERS = {"l2": 1.0, "n3": 1.5}
_DURA = {"dura": (1.0, 1.0), "dura-w": (0.5, 1.5)}  # weights of rows alone and times the relation


def penalties(model: Model, looked: Looked, penalty: Penalty) -> Tensor:
    """Each question's penalty, weighted: (B,).

    `l2` sums the squared moduli of the head's, relation's and tail's coordinates, `n3` their
    cubes (Lacroix et al., 2018). `dura` (Zhang et al., 2020) sums those of the entities and of
    their products with the relation; `dura-w` halves the first and adds half to the second.
    A rare entity is penalised as rarely as it is asked about.
    """
    entity, answer = model.entity_squares(looked.entity), model.entity_squares(looked.answer)
    relation = model.relation_squares(looked.relation)
    if penalty.name in _POWERS:
        power = _POWERS[penalty.name]
        sums = [squares.pow(power).sum(1) for squares in (entity, relation, answer)]
        return penalty.weight * (sums[0] + sums[1] + sums[2])
    alone, turned = _DURA[penalty.name]
    return penalty.weight * ((entity + answer) * (alone + turned * relation)).sum(1)
