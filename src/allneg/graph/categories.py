"""What kind of relation: one or many heads to a tail, one or many tails to a head."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import SPLITS, Graph, Triples

CATEGORIES = ("1-1", "1-n", "n-1", "n-n")
_MANY = 1.5  # on average, as in Bordes et al. (2013)


def relation_categories(graph: Graph) -> tuple[str, ...]:
    """Each relation's category by the averages of Bordes et al. (2013): (R,).

    `1-n` means that a head has 1.5 tails or more and a tail fewer than 1.5 heads, on average over
    the different triples of train. A relation that is not in train goes by all splits.
    """
    in_train = np.bincount(graph.train[:, 1], minlength=graph.n_relations) > 0
    many_heads, many_tails = _many(graph.train, graph)
    if not in_train.all():
        everything = np.concatenate([graph.split(split) for split in SPLITS])
        heads, tails = _many(everything, graph)
        many_heads = np.where(in_train, many_heads, heads)
        many_tails = np.where(in_train, many_tails, tails)
    return tuple(CATEGORIES[number] for number in (2 * many_heads + many_tails).tolist())


def _many(triples: Triples, graph: Graph) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Whether a relation has many heads to a tail, and many tails to a head: (R,) each."""
    head, relation, tail = np.unique(triples, axis=0).T
    count = np.bincount(relation, minlength=graph.n_relations)
    averages = []
    for entity in (tail, head):
        pairs = np.unique(relation * graph.n_entities + entity) // graph.n_entities
        averages.append(count / np.bincount(pairs, minlength=graph.n_relations).clip(min=1))
    return averages[0] >= _MANY, averages[1] >= _MANY
