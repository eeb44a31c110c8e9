from __future__ import annotations

import copy
import json
from dataclasses import replace

import numpy as np
import pytest

from allneg.evaluation import PROTOCOLS, evaluate
from allneg.evaluation.ranks import rank
from allneg.runs import Run
from allneg.serve import views
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.views import examples, quality


def test_the_report_is_the_runs_own_and_equals_an_evaluation(loaded: LoadedRun) -> None:
    found = quality(loaded)
    assert found.report == loaded.run.report.to_json()
    again = evaluate(loaded.predictor.model, loaded.run.tables(), loaded.predictor.graph)
    assert found.report["mrr"] == pytest.approx(again.mrr)
    assert {item.relation for item in found.heat} == set(again.by_relation)
    for item in found.heat:
        expected = again.by_relation[item.relation]
        assert item.head["mrr"] == pytest.approx(expected["head"]["mrr"])
        assert item.tail["hits"] == expected["tail"]["hits"]


def test_an_unfinished_run_is_evaluated_on_request(toy_copy: Run) -> None:
    before = toy_copy.report.to_json()
    (toy_copy.folder / "report.json").unlink()
    found = LoadedRun.load(toy_copy.folder, "copy", {}, "cpu")
    assert found.card.mrr is None
    assert quality(found).report is not None
    assert quality(found).report["mrr"] == pytest.approx(before["mrr"])
    assert quality(found).report["baselines"] == before["baselines"]


def test_a_report_of_an_earlier_version_gets_baselines(toy_copy: Run) -> None:
    before, path = toy_copy.report.to_json(), toy_copy.folder / "report.json"
    path.write_text(json.dumps({name: before[name] for name in before if name != "baselines"}))
    assert quality(LoadedRun.load(toy_copy.folder, "copy", {}, "cpu")).report == before


def test_curves_are_the_metrics_of_every_epoch(loaded: LoadedRun) -> None:
    curves, metrics = quality(loaded).curves, loaded.run.metrics()
    assert [item.epoch for item in curves] == [entry["epoch"] for entry in metrics]
    assert [item.loss for item in curves] == [entry["loss"] for entry in metrics]
    assert [item.valid_mrr for item in curves] == [
        entry["valid"]["mrr"] if "valid" in entry else None for entry in metrics
    ]


def test_a_loss_that_is_not_finite_is_null(toy_copy: Run) -> None:
    path = toy_copy.folder / "metrics.jsonl"
    path.write_text(json.dumps({"epoch": 1, "loss": float("nan"), "seconds": 1}) + "\n")
    assert quality(LoadedRun.load(toy_copy.folder, "copy", {}, "cpu")).curves[0].loss is None


def ranks_of_test(loaded: LoadedRun) -> dict[tuple[str, str, str], list[float]]:
    """The ranks of both sides of each fact."""
    model, tables = loaded.predictor.model, loaded.predictor.tables
    found = rank(model, tables, loaded.graph, "test", PROTOCOLS["allneg"], 1 << 20)
    return dict(zip(loaded.graph.facts("test"), found.ranks.tolist(), strict=True))


def test_the_worst_queries_come_worst_first_with_their_ranks(loaded: LoadedRun) -> None:
    expected = sorted(
        (
            (*fact, side, ranks[i])
            for fact, ranks in ranks_of_test(loaded).items()
            for i, side in enumerate(("tail", "head"))
        ),
        key=lambda item: -item[4],
    )
    found = [(e.head, e.relation, e.tail, e.side, e.rank) for e in quality(loaded).worst]
    assert [item[4] for item in found] == [item[4] for item in expected]
    assert set(found) == set(expected)
    assert quality(loaded).worst_of == 3


def test_a_sample_is_ranked_with_everything_filtered(
    loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = ranks_of_test(loaded)
    monkeypatch.setattr(views, "_N_SCORES_WORST", 2 * 12 * 2)  # two triples of 12 entities
    found = quality.__wrapped__(loaded)
    assert found.worst_of == 2
    for item in found.worst:
        both = ranks[item.head, item.relation, item.tail]
        assert item.rank == both[0 if item.side == "tail" else 1]


def test_examples_ask_about_different_relations_first(loaded: LoadedRun) -> None:
    found = examples(loaded)
    assert len(set(found)) == len(found) >= 2
    assert {item.relation for item in found[:2]} == {"in", "capital_of"}
    assert all((item.head is None) != (item.tail is None) for item in found)


def test_without_test_and_valid_examples_come_from_train(loaded: LoadedRun) -> None:
    none = np.zeros((0, 3), dtype=np.int64)
    changed = copy.copy(loaded)
    changed.graph = replace(loaded.graph, valid=none, test=none)
    assert len(examples(changed)) == 6
