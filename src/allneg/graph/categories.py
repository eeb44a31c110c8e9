"""What kind of relation: one or many heads to a tail, one or many tails to a head."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

_Triples: TypeAlias = npt.NDArray[np.int64]  # (n, 3): head, relation, tail
CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
_MANY = 1.5  # on average, as in Bordes et al. (2013)


def relation_categories(
    splits: Sequence[_Triples], n_entities: int, n_relations: int
) -> tuple[str, ...]:
    """Each relation's category by the averages of Bordes et al. (2013): (R,).

    `1-n` means that a head has 1.5 tails or more and a tail fewer than 1.5 heads, on average over
    the different triples of the first split, train. A relation that is not in train goes by all
    splits.
    """
    in_train = np.bincount(splits[0][:, 1], minlength=n_relations) > 0
    many_heads, many_tails = _many(splits[0], n_entities, n_relations)
    if not in_train.all():
        heads, tails = _many(np.concatenate(splits), n_entities, n_relations)
        many_heads = np.where(in_train, many_heads, heads)
        many_tails = np.where(in_train, many_tails, tails)
    return tuple(CATEGORIES[number] for number in (2 * many_heads + many_tails).tolist())


def _many(
    triples: _Triples, n_entities: int, n_relations: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether a relation has many heads to a tail, and many tails to a head: (R,) each."""
    head, relation, tail = _different(triples, n_entities, n_relations)
    count = np.bincount(relation, minlength=n_relations)
    averages = []
    for entity in (tail, head):
        pairs = np.unique(relation * n_entities + entity) // n_entities
        averages.append(count / np.bincount(pairs, minlength=n_relations).clip(min=1))
    return averages[0] >= _MANY, averages[1] >= _MANY


def _different(triples: _Triples, n_entities: int, n_relations: int) -> _Triples:
    """Each different triple once, by columns: (3, n)."""
    if n_relations * n_entities**2 > np.iinfo(np.int64).max:
        return np.unique(triples, axis=0).T
    # To sort a number a triple takes a tenth of the time.
    keys = np.unique((triples[:, 1] * n_entities + triples[:, 0]) * n_entities + triples[:, 2])
    return np.stack([keys // n_entities % n_entities, keys // n_entities**2, keys % n_entities])
