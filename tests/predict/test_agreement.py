from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from allneg.evaluation.curves import logistic
from allneg.graph import Graph
from allneg.predict import agreement as module
from allneg.predict.agreement import Agreement
from allneg.predict.evidence import Evidence
from allneg.predict.predictor import Predictor
from brute_force import known_facts, make_predictor

ALONE = np.array([0.3, 0.7])


def test_the_log_odds_are_a_sum() -> None:
    agreement = Agreement(np.array([1.0, 2.0]), np.array([0.5, -1.0]), ALONE, np.array([0.0, 3.0]))
    margin, others = np.array([[-1.0, -99.0], [0.1, -2.0]]), np.array([[0.0, 1.0], [3.0, 0.0]])
    expected = [-1 - 2 * 16 + 0.3 - np.log(2) + 3, -2 * 2 + 0.5 * np.log(4) + 0.7]
    assert agreement(margin, others, np.array([1, 0])) == pytest.approx(expected)
    for side in (0, 1):
        said = np.log1p(others[:, side]) * agreement.others[side]
        said += (others[:, side] == 0) * ALONE[side]
        found = agreement.of_others(side, torch.from_numpy(others[:, side]))
        assert found.tolist() == pytest.approx(said.tolist())


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


@pytest.mark.parametrize("most", [20, 200])
def test_a_sample_stands_for_all_new_facts(
    predictor: Predictor, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By kind: a tail is among the best few or not, and train answers its question or not."""
    monkeypatch.setattr(module, "_BEST", 2)
    monkeypatch.setattr(module, "_DRAWN", 4)
    graph, known = predictor.graph, known_facts(predictor.graph)
    n, r = graph.n_entities, graph.n_relations
    every = [(h, k, t) for h in range(n) for k in range(r) for t in range(n)]
    new = np.array([fact for fact in every if fact not in known])
    sample, rates = module._sample(predictor, most)
    assert not known.keys() & set(map(tuple, sample.tolist()))
    weight = module._stands_for(Evidence.of(predictor, sample), rates, n)

    def kinds(facts: np.ndarray) -> np.ndarray:
        evidence = Evidence.of(predictor, facts)
        return 2 * (evidence.rank[:, 0] <= 2) + (evidence.others[:, 0] > 0)

    counted = np.bincount(kinds(new), minlength=4)
    assert np.bincount(kinds(sample), weight, 4) == pytest.approx(counted, rel=0.3, abs=10)


def test_facts_of_valid_are_more_probable_than_other_new_ones(predictor: Predictor) -> None:
    agreement = predictor.agreement
    assert agreement is not None
    assert (agreement.margin >= 0).all()
    true = predictor.classify(predictor.graph.facts("valid")).triples
    others = [fact.probability for fact in predictor.complete()]
    assert np.mean([fact.probability or 0.0 for fact in true]) > 2 * np.mean(others)


def test_without_valid_there_is_none(tiny_graph: Graph) -> None:
    predictor = make_predictor("complex", 1)
    graph = replace(predictor.graph, valid=predictor.graph.valid[:0])
    assert Agreement.fit(replace(predictor, graph=graph)) is None
