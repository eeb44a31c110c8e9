"""Are the columns in the order we were told? Relations are few, and are not entities too."""

from __future__ import annotations

import numpy as np

from allneg.errors import DataError
from allneg.graph.graph import Graph

_FEWEST = 5  # names in the relations' column; toy graphs prove nothing


def order_notes(graph: Graph, columns: str, where: str) -> list[str]:
    """A note where the order of columns looks odd; a `DataError` where it is surely wrong.

    Sure means: the column read as relations has twice the names of another column, and half of
    them are entities too. More names alone is odd only: a graph of many attributes with few
    values looks like that.
    """
    heads, relations, tails = (np.flatnonzero(np.bincount(column)) for column in graph.train.T)
    fewest, letter = min((len(tails), "t"), (len(heads), "h"))
    if len(relations) < _FEWEST or len(relations) <= fewest:
        return []
    names = graph.vocabulary.relations
    both = sum(names[each] in graph.vocabulary.entity_ids for each in relations)
    likely = columns.translate(str.maketrans("r" + letter, letter + "r"))
    said = (
        f"{where}: read as {columns}, there are {len(relations):,} relations but only {fewest:,} "
        f"{'tails' if letter == 't' else 'heads'}"
    )
    if len(relations) >= 2 * fewest and 2 * both >= len(relations):
        raise DataError(
            f"{said}, and {both:,} relations are entities too: the columns are in another order.\n"
            f"Say which it is: data.columns={likely}, most likely"
        )
    return [f"{said}; if the columns are in another order, say data.columns={likely}"]
