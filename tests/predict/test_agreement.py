from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from allneg.graph import Graph
from allneg.predict.agreement import Agreement, logistic
from allneg.predict.predictor import load
from allneg.runs import Run
from brute_force import make_predictor


def test_the_log_odds_are_a_sum() -> None:
    agreement = Agreement(np.array([1.0, 2.0]), np.array([0.5, -1.0]), np.array([0.0, 3.0]))
    margin, others = np.array([[-1.0, -99.0], [0.1, -2.0]]), np.array([[0.0, 1.0], [3.0, 0.0]])
    expected = [-1 - 2 * 16 - np.log(2) + 3, -2 * 2 + 0.5 * np.log(4)]
    assert agreement(margin, others, np.array([1, 0])) == pytest.approx(expected)


def test_the_regression_finds_the_weights_of_many_data() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=(50_000, 2)), np.ones((50_000, 1))], 1)
    true = np.array([1.5, -0.5, -1.0])
    label = rng.random(len(x)) < 1 / (1 + np.exp(-x @ true))
    assert logistic(x, label, np.ones(len(x))) == pytest.approx(true, abs=0.05)
    # A weight of 2 is as good as two copies.
    half = x[:500], label[:500]
    twice = logistic(np.concatenate([half[0]] * 2), np.concatenate([half[1]] * 2), np.ones(1000))
    assert logistic(*half, np.full(500, 2.0)) == pytest.approx(twice)


def test_facts_of_valid_are_more_probable_than_other_new_ones(toy_run: Run) -> None:
    predictor = load(toy_run.folder, "cpu")
    agreement = predictor.agreement
    assert agreement is not None
    assert (agreement.margin >= 0).all()
    names = predictor.graph.vocabulary
    named = [
        (names.entities[h], names.relations[r], names.entities[t])
        for h, r, t in predictor.graph.valid.tolist()
    ]
    true = predictor.classify(named).triples
    others = [fact.probability for fact in predictor.complete()]
    assert np.mean([fact.probability or 0.0 for fact in true]) > 2 * np.mean(others)


def test_without_valid_there_is_none(tiny_graph: Graph) -> None:
    predictor = make_predictor("complex", 1)
    graph = replace(predictor.graph, valid=predictor.graph.valid[:0])
    assert Agreement.fit(replace(predictor, graph=graph)) is None
