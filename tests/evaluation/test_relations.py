from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from allneg.errors import DataError, Diverged
from allneg.evaluation import evaluate_relations
from allneg.graph.queries import Queries
from allneg.models import MODELS
from allneg.predict.predictor import load
from allneg.runs import Run
from brute_force import known_facts, make_predictor


@pytest.mark.parametrize("name", MODELS)
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), reciprocal=st.booleans(), block=st.sampled_from([1, 1000]))
def test_ranks_of_relations_are_those_of_brute_force(
    name: str, seed: int, reciprocal: bool, block: int
) -> None:
    predictor = make_predictor(name, seed, reciprocal)
    graph, known = predictor.graph, known_facts(predictor.graph)
    ranks = []
    for h, r, t in graph.test.tolist():
        scores = [
            float(predictor.scores(Queries.of(torch.tensor([[h, other, t]]), "tail"))[0, t])
            for other in range(graph.n_relations)
        ]
        others = [s for o, s in enumerate(scores) if o != r and (h, o, t) not in known]
        ranks.append(1 + sum(s > scores[r] for s in others))
    found = evaluate_relations(predictor.model, predictor.tables, graph, "test", block)
    assert found["mr"] == pytest.approx(np.mean(ranks))
    assert found["mrr"] == pytest.approx(np.mean(1 / np.array(ranks)))
    assert found["count"] == len(graph.test)
    counts = [table["count"] for table in found["by_relation"].values()]
    assert sum(counts) == len(graph.test)


def test_the_best_relation_is_the_predictors(toy_run: Run) -> None:
    predictor = load(toy_run.folder, "cpu")
    names = predictor.graph.vocabulary
    hits = []
    for h, r, t in predictor.graph.test.tolist():
        best = predictor.relations(names.entities[h], names.entities[t], 9)
        wanted = [p.relation for p in best if p.known is None or p.relation == names.relations[r]]
        hits.append(wanted[0] == names.relations[r])
    found = evaluate_relations(predictor.model, predictor.tables, predictor.graph, "test")
    assert found["hits"]["1"] == pytest.approx(np.mean(hits))
    assert found["protocol"]["name"] == "relations"


def test_a_diverged_model_ranks_no_relations() -> None:
    predictor = make_predictor("complex", 1)
    predictor.tables.entities.fill_(torch.nan)
    with pytest.raises(Diverged, match="not finite"):
        evaluate_relations(predictor.model, predictor.tables, predictor.graph)


def test_an_empty_split_has_nothing_to_rank(toy_run: Run) -> None:
    graph = replace(toy_run.graph, test=toy_run.graph.test[:0])
    with pytest.raises(DataError, match="test has no triples to rank"):
        evaluate_relations(toy_run.model, toy_run.tables(), graph)
