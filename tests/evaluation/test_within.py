from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import AllnegError
from allneg.evaluation import PROTOCOLS, Report, Within
from allneg.evaluation.ranks import rank
from allneg.graph import Graph
from allneg.graph.queries import SIDES, Queries
from allneg.models import MODELS
from allneg.predict.predictor import Predictor
from allneg.runs import Run
from brute_force import known_facts, make_predictor


def names(graph: Graph, mask: torch.Tensor) -> set[str]:
    return {graph.vocabulary.entities[i] for i in mask.nonzero().squeeze(1).tolist()}


def test_seen_are_the_entities_on_this_side_of_the_relation(tiny_graph: Graph) -> None:
    within = Within.parse("seen", tiny_graph)
    for number, side in enumerate(SIDES):
        for r in range(tiny_graph.n_relations):
            of_relation = tiny_graph.train[tiny_graph.train[:, 1] == r]
            column = of_relation[:, 2 if side == "tail" else 0]
            expected = {tiny_graph.vocabulary.entities[i] for i in column}
            assert names(tiny_graph, within.allowed(number, r)) == expected
    assert within.largest(tiny_graph) == 9  # heads of "in"


def test_a_type_is_what_train_says(tiny_graph: Graph) -> None:
    within = Within.parse("type=in:Europe", tiny_graph)
    assert names(tiny_graph, within.allowed(0, 1)) == {"France", "Spain", "Paris", "Madrid"}
    assert within.largest(tiny_graph) == 4


def test_a_list_names_the_entities(tiny_graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "some.txt"
    path.write_bytes("\ufeffParis\r\nRome\n".encode())
    within = Within.parse(str(path), tiny_graph)
    assert names(tiny_graph, within.allowed(1, 0)) == {"Paris", "Rome"}
    assert within.name == "some.txt"


@pytest.mark.parametrize(
    "text, message",
    [
        ("type=in", r"^--within type=in: write type=RELATION:OBJECT"),
        ("type=inn:Europe", "no relation is called 'inn'; close names: 'in'"),
        ("type=in:Europa", "no entity is called 'Europa'; close names: 'Europe'"),
        ("type=capital_of:Earth", "train has no such fact"),
        ("no/such/file", r"cannot be read .*; write seen, type=RELATION:OBJECT, or a file"),
    ],
)
def test_a_wrong_restriction_is_an_error(tiny_graph: Graph, text: str, message: str) -> None:
    with pytest.raises(AllnegError, match=message):
        Within.parse(text, tiny_graph)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"Paris\nRom\n", r"^list:2: no entity is called 'Rom'; close names: 'Rome'"),
        (b"\xff", "not UTF-8"),
        (b"", "no entities; write one name per line"),
    ],
)
def test_a_bad_list_is_bad_data(
    tiny_graph: Graph, tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "list").write_bytes(content)
    with pytest.raises(AllnegError, match=message):
        Within.parse(str(tmp_path / "list"), tiny_graph)


def test_relations_and_objects_may_have_colons(tiny_graph: Graph) -> None:
    train = tiny_graph.train[:1]
    words = tiny_graph.vocabulary.entities[:-2]
    vocabulary = type(tiny_graph.vocabulary)((*words, "b:c", "c"), ("x", "r:a"))
    triples = np.array([[0, 1, len(words)], [1, 0, len(words) + 1]])
    graph = Graph("colons", vocabulary, triples, train[:0], train[:0])
    assert Within.parse("type=r:a:b:c", graph).entities.tolist()[:2] == [True, False]


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), kind=st.sampled_from(["seen", "list"]))
def test_ranks_within_a_set_are_those_of_brute_force(name: str, seed: int, kind: str) -> None:
    predictor = make_predictor(name, seed)
    graph = predictor.graph
    within = Within.parse("seen", graph)
    if kind == "list":
        mask = np.random.default_rng(seed).random(graph.n_entities) < 0.6
        within = Within("list", torch.from_numpy(mask))
    model, tables, rules = predictor.model, predictor.tables, PROTOCOLS["allneg"]
    ranking = rank(model, tables, graph, "test", rules, 64, within)
    known = known_facts(graph)
    for i, (h, r, t) in enumerate(ranking.triples.tolist()):
        for column, (side, answer) in enumerate(zip(SIDES, (t, h), strict=True)):
            queries = Queries.of(torch.tensor([[h, r, t]]), side)
            values = predictor.scores(queries)[0].tolist()
            allowed = within.allowed(column, r).tolist()
            facts = [(h, r, e) if side == "tail" else (e, r, t) for e in range(len(values))]
            others = [e for e, fact in enumerate(facts) if e != answer and fact not in known]
            key = [(allowed[e], values[e] if allowed[e] else 0.0) for e in range(len(values))]
            better = sum(key[e] > key[answer] for e in others)
            equal = sum(key[e] == key[answer] for e in others)
            assert (ranking.better[i, column], ranking.equal[i, column]) == (better, equal)


def test_a_restricted_ranking_is_a_protocol_of_its_own(toy_run: Run) -> None:
    within, rules = Within.parse("seen", toy_run.graph), PROTOCOLS["allneg"]
    ranking = rank(toy_run.model, toy_run.tables(), toy_run.graph, "test", rules, 1 << 20, within)
    report = Report.of(ranking, toy_run.graph)
    assert report.protocol["name"] == "within seen"
    assert report.candidates == 9
    assert ranking.protocol != rules


def test_predictions_within_a_set_keep_their_numbers(predictor: Predictor) -> None:
    within = Within.parse("type=in:Europe", predictor.graph)
    for side in SIDES:
        query = [(side, "France", "borders")]
        every = predictor.answers(query, 12)[0].predictions
        found = predictor.answers(query, 12, within=within)[0].predictions
        inside = ("France", "Spain", "Paris", "Madrid")
        assert found == [answer for answer in every if answer.entity in inside]
