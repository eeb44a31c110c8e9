from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from allneg.evaluation import PROTOCOLS, evaluate
from allneg.evaluation.ranks import rank
from allneg.runs import Run
from allneg.serve import quality as module
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.quality import examples, quality


def test_the_report_is_the_runs_own_and_equals_an_evaluation(opened: LoadedRun) -> None:
    found = opened.quality
    assert found.report == opened.run.report.to_json()
    again = evaluate(opened.predictor.model, opened.run.tables(), opened.predictor.graph)
    assert found.report["mrr"] == pytest.approx(again.mrr)
    assert {each.relation for each in found.heat} == set(again.by_relation)
    for each in found.heat:
        expected = again.by_relation[each.relation]
        assert each.head["mrr"] == pytest.approx(expected["head"]["mrr"])
        assert each.tail["hits"] == expected["tail"]["hits"]


def test_an_unfinished_run_is_ranked_now(toy_copy: Run) -> None:
    before = toy_copy.report.to_json()
    (toy_copy.folder / "report.json").unlink()
    found = LoadedRun.load(toy_copy.folder, "copy", {}, "cpu")
    assert found.card.mrr is None
    assert found.quality.report is not None
    assert found.quality.report["mrr"] == pytest.approx(before["mrr"])


def test_curves_are_the_metrics_of_every_epoch(opened: LoadedRun) -> None:
    curves, metrics = opened.quality.curves, opened.run.metrics()
    assert [each.epoch for each in curves] == [entry["epoch"] for entry in metrics]
    assert [each.loss for each in curves] == [entry["loss"] for entry in metrics]
    assert [each.valid_mrr for each in curves] == [
        entry["valid"]["mrr"] if "valid" in entry else None for entry in metrics
    ]


def test_a_loss_that_is_not_finite_is_null(toy_copy: Run) -> None:
    path = toy_copy.folder / "metrics.jsonl"
    path.write_text(json.dumps({"epoch": 1, "loss": float("nan"), "seconds": 1}) + "\n")
    assert LoadedRun.load(toy_copy.folder, "copy", {}, "cpu").quality.curves[0].loss is None


def test_the_worst_questions_come_worst_first_with_their_ranks(opened: LoadedRun) -> None:
    graph, names = opened.predictor.graph, opened.predictor.graph.vocabulary
    ranking = rank(
        opened.predictor.model, opened.predictor.tables, graph, "test", PROTOCOLS["allneg"], 1 << 20
    )
    expected = sorted(
        (
            (names.entities[h], names.relations[r], names.entities[t], side, ranks[i])
            for (h, r, t), ranks in zip(
                ranking.triples.tolist(), ranking.ranks.tolist(), strict=True
            )
            for i, side in enumerate(("tail", "head"))
        ),
        key=lambda each: -each[4],
    )
    found = [(e.head, e.relation, e.tail, e.side, e.rank) for e in opened.quality.worst]
    assert [each[4] for each in found] == [each[4] for each in expected]
    assert set(found) == set(expected)
    assert opened.quality.worst_of == 3


def test_a_sample_is_ranked_with_everything_filtered(
    opened: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rank(
        opened.predictor.model,
        opened.predictor.tables,
        opened.predictor.graph,
        "test",
        PROTOCOLS["allneg"],
        1 << 20,
    )
    ranks = {tuple(t): r for t, r in zip(whole.triples.tolist(), whole.ranks.tolist(), strict=True)}
    monkeypatch.setattr(module, "_N_SCORES_WORST", 2 * 12 * 2)  # two triples of 12 entities
    found = quality(opened.run, opened.predictor)
    assert found.worst_of == 2
    names = opened.predictor.graph.vocabulary
    for each in found.worst:
        triple = (names.entity(each.head), names.relation(each.relation), names.entity(each.tail))
        assert each.rank == ranks[triple][0 if each.side == "tail" else 1]


def test_examples_ask_about_different_relations_first(opened: LoadedRun) -> None:
    found = opened.examples
    assert len(set(found)) == len(found) >= 2
    assert {each.relation for each in found[:2]} == {"in", "capital_of"}
    assert all((each.head is None) != (each.tail is None) for each in found)


def test_without_test_and_valid_examples_come_from_train(opened: LoadedRun) -> None:
    none = np.zeros((0, 3), dtype=np.int64)
    graph = replace(opened.predictor.graph, valid=none, test=none)
    predictor = replace(opened.predictor, graph=graph)
    assert len(examples(predictor, opened.facts.degree)) == 6
