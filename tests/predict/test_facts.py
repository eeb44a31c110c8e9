from __future__ import annotations

from dataclasses import replace

import numpy as np

from allneg.graph import Graph
from allneg.graph.graph import SPLITS
from allneg.predict.lookup import Facts


def test_of_entity_returns_all_facts_of_an_entity(tiny_graph: Graph) -> None:
    facts, names = Facts.of(tiny_graph), tiny_graph.vocabulary
    for entity in range(tiny_graph.n_entities):
        around = facts.of_entity(entity)
        found = sorted(
            (t, r, entity, s) if back else (entity, r, t, s)
            for r, t, s, back in zip(
                around.relation.tolist(),
                around.other.tolist(),
                around.split.tolist(),
                around.reverse.tolist(),
                strict=True,
            )
        )
        expected = sorted(
            (h, r, t, s)
            for s, split in enumerate(SPLITS)
            for h, r, t in tiny_graph.split(split).tolist()
            if entity in (h, t)
        )
        assert found == expected, names.entities[entity]
        assert facts.degree[entity] == len(expected)


def test_facts_between_two_entities_have_either_direction_and_a_split(tiny_graph: Graph) -> None:
    facts, names = Facts.of(tiny_graph), tiny_graph.vocabulary
    france, italy = names.entity("France"), names.entity("Italy")
    borders = names.relation("borders")
    expected = {(france, borders, italy, "train"), (italy, borders, france, "valid")}
    assert set(facts.between(france, italy)) == expected
    assert set(facts.between(italy, france)) == expected
    assert facts.between(france, names.entity("Lisbon")) == []


def test_a_fact_in_two_splits_counts_once_in_the_first(tiny_graph: Graph) -> None:
    twice = replace(tiny_graph, test=tiny_graph.train[:3])
    facts = Facts.of(twice)
    assert len(facts.triples) == len(twice.train) + len(twice.valid)
    assert set(facts.split.tolist()) == {0, 1}


def test_a_loop_is_between_an_entity_and_itself_once(tiny_graph: Graph) -> None:
    looped = replace(tiny_graph, test=np.array([[0, 0, 0]]))
    assert Facts.of(looped).between(0, 0) == [(0, 0, 0, "test")]


def test_a_loop_is_one_fact(tiny_graph: Graph) -> None:
    graph = replace(tiny_graph, test=tiny_graph.test[:0])
    before, after = Facts.of(graph), Facts.of(replace(graph, test=np.array([[0, 0, 0]])))
    assert after.degree[0] == before.degree[0] + 1 == len(after.of_entity(0).other)
    assert (after.degree[1:] == before.degree[1:]).all()
