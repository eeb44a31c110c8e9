"""Triples in memory → a graph."""

from collections.abc import Iterable, Sequence

from allneg.errors import DataError, printable
from allneg.graph.clean import cleaned
from allneg.graph.graph import Graph, Vocabulary
from allneg.graph.read import _Ids, _numbered
from allneg.recipe import Data


def graph_of(triples: Iterable[Sequence[str]], settings: Data) -> Graph:
    """The graph of triples (head, relation, tail), split by `settings` as one file would be."""
    rows = [tuple(triple) for triple in triples]
    for number, row in enumerate(rows):
        if len(row) != 3 or not all(isinstance(name, str) and name for name in row):
            raise DataError(f"triple {number}: expected three names; found {printable(str(row))}")
    if not rows:
        raise DataError("there are no triples; train needs at least one")
    entities, relations = _Ids(), _Ids()
    heads, links, tails = ([str(row[column]) for row in rows] for column in range(3))
    ids = _numbered((heads, links, tails), entities, relations)
    names = Vocabulary(tuple(entities), tuple(relations))
    return cleaned("triples", {"": ids}, names, [], settings)
