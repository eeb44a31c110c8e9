"""Counts of facts: which entities already have their only fact of a relation."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest
import torch

from allneg.errors import DataError
from allneg.evaluation.counts import count_facts
from allneg.graph import Graph
from allneg.graph.queries import Queries, Side
from allneg.scoring import scores

# Relation 0: heads have one tail each, tails have several heads. Relation 1: many to many.
FACTS = [(0, 0, 4), (1, 0, 4), (2, 0, 4), (3, 0, 5), (0, 1, 1), (0, 1, 2), (1, 1, 1), (1, 1, 2)]


@pytest.fixture
def graph(tiny_graph: Graph) -> Graph:
    return replace(tiny_graph, train=np.array(FACTS))


def scored(graph: Graph, side: Side, relation: int, most: int = 9) -> list[float]:
    """The score of every entity as the answer of a query for one side of a relation."""
    one = torch.tensor([3])
    asked = Queries.for_side(side, one, torch.tensor([relation]), one)
    found: list[float] = scores(*count_facts(graph, most), asked)[0].tolist()
    return found


def test_entities_with_their_only_fact_have_a_lower_score(graph: Graph) -> None:
    weight = log((4 + 0.5) / 0.5)  # four facts, each the only one of its head
    expected = [-weight] * 4 + [0.0] * (graph.n_entities - 4)
    assert scored(graph, "head", 0) == pytest.approx(expected)


@pytest.mark.parametrize("side, relation", [("tail", 0), ("head", 1), ("tail", 1), ("head", 2)])
def test_other_sides_have_no_weight(graph: Graph, side: Side, relation: int) -> None:
    assert set(scored(graph, side, relation)) == {0.0}


def test_the_sides_with_the_most_facts_are_kept(graph: Graph) -> None:
    more = [(0, 2, 7), (1, 2, 7)]  # heads have one tail each, too
    graph = replace(graph, train=np.array([*FACTS, *more]))
    assert count_facts(graph, 9)[0].dim == 2
    assert count_facts(graph, 1)[0].dim == 1
    assert scored(graph, "head", 0, most=1) == scored(graph, "head", 0)
    assert set(scored(graph, "head", 2, most=1)) == {0.0}


def test_without_such_a_side_there_is_an_error(graph: Graph) -> None:
    with pytest.raises(DataError, match="no relation has mostly one fact per head or per tail"):
        count_facts(replace(graph, train=np.array(FACTS[4:])), 9)
