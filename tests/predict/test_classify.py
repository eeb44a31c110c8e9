from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import DataError, UsageError
from allneg.evaluation.curves import log_odds
from allneg.graph import Graph
from allneg.models import MODELS
from allneg.predict.classify import (
    Classifier,
    _best_threshold,
    _fit_curve,
    accuracy_and_f1,
    agreed,
    area_under_curve,
    calibration_error,
    classify,
    typed_negatives,
)
from allneg.predict.evidence import Evidence
from allneg.predict.fact_files import ids_of
from allneg.predict.predictor import Predictor
from brute_force import known_facts, make_predictor, margins, probabilities


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10_000), reciprocal=st.booleans(), ties=st.booleans())
def test_evidence_is_that_of_brute_force(
    name: str, seed: int, reciprocal: bool, ties: bool
) -> None:
    predictor = make_predictor(name, seed, reciprocal, ties)
    n, known = predictor.graph.n_entities, known_facts(predictor.graph)
    facts = np.array([[h, 0, t] for h in range(n) for t in range(n)])
    found = Evidence.of(predictor, facts)
    probability = probabilities(predictor)
    rates = agreed(predictor, found, facts[:, 1])
    assert rates is not None
    for i, (h, _, t) in enumerate(facts.tolist()):
        sides = [margins(predictor, "tail", h, 0), margins(predictor, "head", t, 0)]
        assert found.margin[i].tolist() == pytest.approx([sides[0][t], sides[1][h]], abs=1e-4)
        assert rates[i] == pytest.approx(probability[h, 0, t], abs=1e-4)
        if ties:
            continue  # which scores are equal depends on rounding
        others = [
            [m for e, m in sides[0].items() if e != t and (h, 0, e) not in known],
            [m for e, m in sides[1].items() if e != h and (e, 0, t) not in known],
        ]
        ranks = [1 + sum(m > own for m in others[s]) for s, own in enumerate(found.margin[i])]
        assert found.rank[i].tolist() == ranks


@pytest.mark.parametrize("seed", range(5))
def test_negatives_are_new_and_of_the_right_type(tiny_graph: Graph, seed: int) -> None:
    known = known_facts(tiny_graph)
    found = typed_negatives(tiny_graph, tiny_graph.train, seed)
    assert len(found) == len(tiny_graph.train)
    for (h, r, t), (a, b, c) in zip(found.tolist(), tiny_graph.train.tolist(), strict=True):
        assert (h, r, t) not in known
        assert r == b
        assert (h == a) != (t == c)
        of_relation = tiny_graph.train[tiny_graph.train[:, 1] == r]
        assert h in of_relation[:, 0]
        assert t in of_relation[:, 2]
    assert np.array_equal(found, typed_negatives(tiny_graph, tiny_graph.train, seed))


def test_where_every_replacement_is_known_there_is_no_negative() -> None:
    train = np.array([[h, 0, t] for h in range(2) for t in range(2)])
    graph = make_predictor("complex", 1).graph
    names = replace(graph.vocabulary, entities=("a", "b"), relations=("r",))
    full = Graph("full", names, train, train[:0], train[:0])
    assert typed_negatives(full, train).shape == (0, 3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=1, max_size=12))
def test_no_other_threshold_is_more_accurate(facts: list[tuple[int, bool]]) -> None:
    evidence = np.array([x for x, _ in facts], dtype=float)
    label = np.array([true for _, true in facts])

    def accuracy(threshold: float) -> float:
        right = (evidence >= threshold) == label
        return sum(float(right[part].mean()) for part in (label, ~label) if part.any())

    best = max(accuracy(threshold) for threshold in np.arange(-4, 5) + 0.5)
    assert accuracy(_best_threshold(evidence, label)) == pytest.approx(best)


def test_metrics_are_those_worked_out_by_hand() -> None:
    label = np.array([True, True, False, False])
    verdict = np.array([True, False, True, False])
    assert accuracy_and_f1(verdict, label) == {"accuracy": 0.5, "f1": 0.5}
    assert area_under_curve(np.array([3.0, 1.0, 1.0, 0.0]), label) == pytest.approx(3.5 / 4)
    assert area_under_curve(np.array([1.0]), label[:1]) is None
    probability = np.array([0.95, 0.95, 0.15, 0.05])
    assert calibration_error(probability, label) == pytest.approx((0.1 + 0.15 + 0.05) / 4)


def test_rare_relations_share_a_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    predictor = make_predictor("complex", 8)
    graph = predictor.graph
    few = Classifier.fit(predictor)
    assert few is not None
    assert few.n_own == 0
    assert len(set(few.threshold.tolist())) == 1
    monkeypatch.setattr("allneg.predict.classify.LEAST", 1)
    own = Classifier.fit(predictor)
    assert own is not None
    assert own.n_own > 0
    for r in range(graph.n_relations):
        facts = np.concatenate([graph.valid, typed_negatives(graph, graph.valid)])
        label = (np.arange(len(facts)) < len(graph.valid))[facts[:, 1] == r]
        evidence = Evidence.of(predictor, facts[facts[:, 1] == r]).total
        if label.any() and not label.all():
            assert own.threshold[r] == pytest.approx(_best_threshold(evidence, label), abs=1e-4)
        else:
            assert own.threshold[r] == pytest.approx(few.threshold[r])


def test_facts_get_score_probability_ranks_and_verdict(predictor: Predictor) -> None:
    facts = [("France", "borders", "Spain"), ("Rome", "capital_of", "Italy")]
    found = classify(predictor, [*facts, ("Earth", "borders", "Paris")], [True, True, False])
    assert [fact.known for fact in found.triples] == ["train", "test", None]
    assert found.metrics.keys() == {"accuracy", "f1", "auc", "ece"}
    first = found.triples[0]
    sides = [
        next(a for a in predictor.tails("France", "borders", 12) if a.entity == "Spain"),
        next(a for a in predictor.heads("Spain", "borders", 12) if a.entity == "France"),
    ]
    assert first.score == pytest.approx((sides[0].score + sides[1].score) / 2, rel=1e-5)
    ids = ids_of(predictor.graph, facts[:1])
    rates = agreed(predictor, Evidence.of(predictor, ids), ids[:, 1])
    assert rates is not None
    assert first.probability == pytest.approx(float(rates[0]))
    assert "made by replacing one side" in found.protocol


@pytest.mark.parametrize("seed", range(10))
def test_probabilities_of_separate_groups_are_calibrated(seed: int) -> None:
    """A tenth of the true facts looks like the false ones, and a tenth of these like the true."""
    rng, label = np.random.default_rng(seed), np.arange(4000) < 2000
    fitted, measured = (
        rng.uniform(8, 32, 4000) * np.where((rng.random(4000) < 0.9) == label, 1, -1)
        for _ in range(2)
    )
    error = calibration_error(_fit_curve(fitted, label)(measured), label)
    assert error is not None
    assert error < 0.03


def test_given_negatives_fit_probabilities(predictor: Predictor) -> None:
    false = [("Earth", "borders", "Paris"), ("Paris", "borders", "Earth")]
    facts = [*false, ("Italy", "in", "Europe"), ("Italy", "borders", "France")]
    found = classify(predictor, facts, [False, False, True, True], false)
    assert "2 false facts given" in found.protocol
    stored = classify(predictor, facts)
    assert [f.probability for f in found.triples] != [f.probability for f in stored.triples]
    ids = np.array([[*map(predictor.graph.vocabulary.entity, (h, t))] for h, _, t in facts])
    relation = [predictor.graph.vocabulary.relation(r) for _, r, _ in facts]
    evidence = Evidence.of(predictor, np.stack([ids[:, 0], relation, ids[:, 1]], 1))
    assert evidence.total == pytest.approx(log_odds(evidence.margin).sum(1))
    probability = np.array([fact.probability for fact in found.triples])
    in_order = probability[np.argsort(evidence.total)]
    assert (np.diff(in_order) >= 0).all()  # more evidence, never less probable
    assert in_order[0] < in_order[-1]


def test_without_valid_there_are_no_verdicts() -> None:
    predictor = make_predictor("complex", 1)
    graph = replace(predictor.graph, valid=predictor.graph.valid[:0])
    train = {"train": predictor.known["train"]}
    none = replace(predictor, graph=graph, known=train, stored=None, fitted=None)
    found = classify(none, [("e0", "r0", "e1")], [True])
    assert (found.triples[0].verdict, found.triples[0].probability) == (None, None)
    assert found.metrics == {"auc": None}


def test_an_unknown_name_is_located() -> None:
    with pytest.raises(DataError, match=r"^fact 2: no entity is called 'x'"):
        classify(make_predictor("complex", 1), [("e0", "r0", "e1"), ("x", "r0", "e1")])


def test_no_facts_have_no_verdicts() -> None:
    assert classify(make_predictor("complex", 1), [], []).triples == []


def test_a_data_frame_is_judged_as_a_list_is(predictor: Predictor) -> None:
    facts = [("Rome", "capital_of", "Italy"), ("Earth", "borders", "Paris")]
    frame = pd.DataFrame(facts, columns=["subject", "predicate", "object"])
    frame = frame[["object", "subject", "predicate"]]  # columns are found by name
    assert predictor.score(frame) == predictor.score(facts)
    found = predictor.classify(frame, negatives=frame[1:])
    assert found == predictor.classify(facts, negatives=facts[1:])
    assert found.triples.to_pandas()["tail"].tolist() == ["Italy", "Paris"]


def test_wrong_arguments_are_named(predictor: Predictor) -> None:
    fact = ("Rome", "capital_of", "Italy")
    with pytest.raises(UsageError, match="2 labels of 1 fact"):
        predictor.classify([fact], [True, False])
    for wrong in ([("Rome", "capital_of")], fact):
        with pytest.raises(UsageError, match=r"expected \(head, relation, tail\), found"):
            predictor.classify(wrong)
    with pytest.raises(UsageError, match="found 'Rome'"):
        predictor.predict(("Rome", "capital_of", None))  # type: ignore[arg-type]
