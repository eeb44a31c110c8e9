from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from allneg.auditing import audit as module
from allneg.auditing.audit import audit, judge, quick_plan
from allneg.auditing.duplicates import Duplicate, alike, duplicates
from allneg.auditing.features import Links, features, log_odds
from allneg.auditing.reasons import Reasons, single_answers
from allneg.errors import DataError, UsageError
from allneg.graph import Graph, Vocabulary
from allneg.graph.graph import triple_keys
from allneg.predict.classify import typed_negatives
from allneg.predict.evidence import Evidence
from allneg.predict.lookup import Facts
from allneg.predict.predictor import Predictor
from allneg.predict.scorer import EntityVectors
from allneg.recipe import Recipe
from allneg.training.callbacks import Callbacks
from brute_force import make_predictor

Quick = Callable[..., Recipe]
SETTINGS = {"model.dim": 4, "training.epochs": 2, "hardware.device": "cpu", "hardware.threads": 1}


def test_no_fact_is_judged_by_a_model_that_learned_it(
    tiny_graph: Graph, quick: Quick, tmp_path: Path
) -> None:
    judged = judge(tiny_graph, quick("training.epochs=1"), 3, tmp_path, Callbacks())
    every = Facts.of(tiny_graph).triples
    assert judged.facts.tolist() == every.tolist()
    for k, run in enumerate(judged.runs):
        learned, held_out = run.graph.train, judged.facts[judged.fold == k]
        assert len(learned) + len(held_out) == len(every)
        keys = triple_keys([learned, held_out], 12, 3)
        assert not np.isin(*keys).any()
        found = module._of_fold(run, held_out)
        assert judged.rank[judged.fold == k] == pytest.approx(Evidence.of(found, held_out).rank)


def test_the_most_suspicious_facts_are_first(tiny_graph: Graph) -> None:
    found = audit(tiny_graph, settings=SETTINGS, folds=2, top=7)
    probability = [fact.probability for fact in found.facts]
    assert len(probability) == 7
    assert probability == sorted(probability)
    assert found.n_facts == 25
    assert all(fact.expected and fact.reason for fact in found.facts)


def test_an_audit_that_was_killed_continues(
    tiny_graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit, calls = module.fit, 0

    def dies(*args: Any, **more: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        fit(*args, **more)

    options: dict[str, Any] = {"settings": SETTINGS, "folds": 3, "out": tmp_path / "folds"}
    monkeypatch.setattr(module, "fit", dies)
    with pytest.raises(KeyboardInterrupt):
        audit(tiny_graph, **options)
    (tmp_path / "folds/fold-3/checkpoints").mkdir(parents=True)  # killed before it was a run
    with pytest.raises(UsageError, match="from an audit with other data or options"):
        audit(tiny_graph, **{**options, "folds": 4})
    continued = audit(tiny_graph, **options)
    assert calls == 4  # the first fold is not trained again
    monkeypatch.setattr(module, "fit", fit)
    assert continued == audit(tiny_graph, settings=SETTINGS, folds=3)


def test_an_audit_takes_about_as_long_as_one_training(tiny_graph: Graph) -> None:
    usual = quick_plan(tiny_graph, tiny_graph, 2, settings=["hardware.device=cpu"])
    assert usual.training.epochs == 50
    given = quick_plan(tiny_graph, tiny_graph, 2, settings=["training.epochs=7"])
    assert given.training.epochs == 7
    recipe = quick_plan("countries", tiny_graph, 2, recipe="countries/complex", settings=[])
    assert recipe.training.epochs == 40


def test_wrong_numbers_and_small_graphs_are_refused(tiny_graph: Graph, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least 2 folds"):
        audit(tiny_graph, folds=1)
    with pytest.raises(DataError, match="too few facts for 13 folds: 25"):
        audit(tiny_graph, folds=13, settings=SETTINGS)


def test_features_are_those_of_the_other_facts(tiny_graph: Graph) -> None:
    """(Madrid, in, Spain), which train lacks here, and (Rome, borders, Rome)."""
    names = tiny_graph.vocabulary
    ids = [("Madrid", "in", "Spain"), ("Rome", "borders", "Rome")]
    facts = np.array([[names.entity(h), names.relation(r), names.entity(t)] for h, r, t in ids])
    rest = tiny_graph.train[~(tiny_graph.train == facts[0]).all(1)]
    graph = replace(tiny_graph, train=rest)
    numbers = np.array([[-1.0, -99.0], [-2.0, -3.0]])
    others = np.array([[1.0, 0.0], [0.0, 0.0]])  # Madrid is in Europe, too
    found = features(graph, facts, Evidence(numbers, numbers, np.full((2, 2), 4.0), others))
    log = np.log
    degrees = [[log(3), log(7)], [log(2), log(2)]]
    share = 7 / 9  # of the heads of `in` have one tail
    paths = np.log1p(Links(graph).paths(facts)).tolist()
    assert found[0] == pytest.approx(
        [
            -1,
            -16,
            log(4),
            log(4),
            log(2),
            0,
            0,
            1,
            *degrees[0],
            0,
            0,
            share,
            0,
            log(2),
            *paths[0],
            1,
        ]
    )
    assert found[1] == pytest.approx(
        [-2, -3, log(4), log(4), 0, 0, 1, 1, *degrees[1], 0, 0, 0, 0, 0, *paths[1], 1]
    )


@pytest.mark.parametrize("seed", range(5))
def test_paths_are_counted_as_by_brute_force(seed: int) -> None:
    graph = make_predictor("complex", seed).graph
    n = graph.n_entities
    linked = {frozenset((h, t)) for h, _, t in graph.train.tolist() if h != t}
    facts = np.array([(h, 0, t) for h in range(n) for t in range(n) if h != t])
    expected = []
    for h, _, t in facts.tolist():
        near, last = (
            [e for e in range(n) if e not in (h, t) and frozenset((end, e)) in linked]
            for end in (h, t)
        )
        three = sum(frozenset((e, f)) in linked for e in near for f in last)
        expected.append([len(set(near) & set(last)), three])
    assert Links(graph).paths(facts).tolist() == expected


def test_wrong_facts_are_as_rare_as_assumed() -> None:
    rng = np.random.default_rng(0)
    right, wrong = rng.normal(1, 1, (20_000, 1)), rng.normal(-1, 1, (3000, 1))
    x, made = (np.concatenate([part, np.ones_like(part)], 1) for part in (right, wrong))
    found = log_odds(x, np.zeros(len(x), dtype=int), made, np.zeros(len(made), dtype=int))
    assert (np.diff(found[np.argsort(x[:, 0])]) >= 0).all()
    # Two normal distributions: the log-odds are 2 x, plus those of 19 to 1.
    assert found == pytest.approx(2 * x[:, 0] + np.log(19), abs=0.5)


def test_relations_weigh_features_in_their_own_way() -> None:
    """What speaks for a fact of one relation speaks against one of the other."""
    rng = np.random.default_rng(0)
    relation, of_made = rng.integers(2, size=4000), rng.integers(2, size=4000)
    right = rng.normal(1 - 2 * relation)
    wrong = rng.normal(2 * of_made - 1)
    x, made = (np.stack([part, np.ones_like(part)], 1) for part in (right, wrong))
    found = log_odds(x, relation, made, of_made)
    sign = 1 - 2 * relation
    assert found == pytest.approx(2 * sign * right + np.log(19), abs=1)


def test_one_answer_per_entity_is_counted_by_relation(tiny_graph: Graph) -> None:
    names = tiny_graph.vocabulary.relations
    of_heads = dict(zip(names, single_answers(tiny_graph, 0), strict=True))
    assert of_heads == pytest.approx({"borders": 1 / 3, "capital_of": 1.0, "in": 2 / 3})
    assert single_answers(tiny_graph, 2)[1] == 1.0


def test_reasons_name_the_pattern_that_is_violated(predictor: Predictor) -> None:
    names = predictor.graph.vocabulary
    reasons = Reasons(predictor)

    def why(head: str, relation: str, tail: str, *ranks: float) -> tuple[str, str]:
        ids = names.entity(head), names.relation(relation), names.entity(tail)
        return reasons(*ids, *ranks)

    expected, reason = why("Paris", "capital_of", "Europe", 9, 2)
    assert "Paris has another tail, France: 100% of all have one tail" in reason
    assert "Europe is never the tail of capital_of elsewhere" in reason
    assert expected.startswith("tail: ")
    assert expected.removeprefix("tail: ") == (
        predictor.tails("Paris", "capital_of", 1, new=True)[0].entity
    )
    expected, reason = why("Rome", "in", "Italy", 1, 3)
    assert expected.startswith("head: ")
    assert "another" not in reason
    assert "never" not in reason
    # No relation links an entity to itself, so none is expected to.
    for head, relation, tail in predictor.graph.train.tolist():
        given = names.entities[head]
        assert reasons(head, relation, tail, 9, 2)[0] != f"tail: {given}"


def test_near_duplicates_share_most_of_their_facts() -> None:
    names = Vocabulary(tuple("abcdefgh"), ("r", "same", "inverse", "own inverse"))
    facts = [(0, 0, t) for t in (2, 3, 4, 5)] + [(1, 0, t) for t in (2, 3, 4, 5)] + [(6, 0, 7)]
    facts += [(h, 1, t) for h, r, t in facts[:8]] + [(t, 2, h) for h, r, t in facts[:8]]
    facts += [(h, 3, t) for h, t in [(6, 7), (7, 6), (6, 5), (5, 6)]]
    triples = np.array(facts)
    found = duplicates(Graph("g", names, triples, triples[:0], triples[:0]), triples)
    pairs = {(pair.kind, pair.first, pair.second): pair.similarity for pair in found}
    assert pairs["entities", "a", "b"] == 1.0
    assert pairs["relations", "r", "same"] == pytest.approx(8 / 9)
    assert pairs["inverse relations", "r", "inverse"] == pytest.approx(8 / 9)
    assert Duplicate("inverse relations", "same", "inverse", 1.0, 8.0) in found
    assert not any("own inverse" in key for key in pairs)
    assert [pair.similarity for pair in found] == sorted(pairs.values(), reverse=True)


def test_entities_are_alike_if_most_models_find_so() -> None:
    names = Vocabulary(tuple("abcdef"), ("r",))
    facts = np.array([(h, 0, t) for h in range(4) for t in (4, 5)] + [(4, 0, 0), (4, 0, 1)])
    facts = np.concatenate([facts, [(2, 0, 0), (3, 0, 0)]])  # all have three facts or more; b does
    graph = Graph("g", names, facts, facts[:0], facts[:0])
    angles = torch.tensor([0.0, 0.1, 1.0, 1.2, 2.5, 4.0])
    rows = torch.stack([angles.cos(), angles.sin()], 1)
    other = rows.clone()
    other[3] = -rows[2]  # d is like c in one of two models only
    found = alike([EntityVectors(rows), EntityVectors(3 * other)], graph, facts)
    assert [(pair.kind, pair.first, pair.second) for pair in found] == [
        ("entities by vectors", "a", "b")
    ]
    assert found[0].similarity == pytest.approx(math.cos(0.1))
    assert found[0].shared == 3  # r to e, r to f, r from e
    few = facts[facts[:, 2] != 1]  # b has two facts, which say little
    assert not alike([EntityVectors(rows)] * 2, graph, few[few[:, 0] < 2])


def test_entities_with_common_facts_only_are_no_duplicates() -> None:
    """Ten towns of which the same three facts are known."""
    names = Vocabulary(tuple(f"e{i}" for i in range(13)), ("r",))
    facts = np.array([(town, 0, other) for town in range(10) for other in (10, 11, 12)])
    graph = Graph("g", names, facts, facts[:0], facts[:0])
    found = duplicates(graph, facts)
    assert {(pair.first, pair.second) for pair in found} == {
        ("e10", "e11"), ("e10", "e12"), ("e11", "e12")
    }  # fmt: skip


def test_random_negatives_take_any_entity() -> None:
    predictor: Predictor = make_predictor("complex", 5)
    graph = predictor.graph
    facts = np.repeat(graph.train, 300, axis=0)
    drawn = typed_negatives(graph, facts, typed=False)[:, [0, 2]]
    assert set(drawn.reshape(-1).tolist()) == set(range(graph.n_entities))
