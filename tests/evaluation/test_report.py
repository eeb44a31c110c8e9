"""A report worked out by hand, and its way through JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from allneg.evaluation import PROTOCOLS, Report
from allneg.evaluation.ranks import Ranking
from allneg.evaluation.report import METRICS, by_heading, metrics_of
from allneg.graph import Graph, Vocabulary


@pytest.fixture
def graph() -> Graph:
    """r0 is 1-1, r1 is n-1 (two heads to a tail), and entity 4 is not in train."""
    train = np.array([[0, 0, 1], [1, 0, 2], [0, 1, 3], [1, 1, 3]])
    test = np.array([[2, 0, 3], [2, 1, 3], [4, 1, 3]])
    names = Vocabulary(("a", "b", "c", "d", "e"), ("next", "in"))
    return Graph("hand", names, train, test[:0], test)


@pytest.fixture
def ranking(graph: Graph) -> Ranking:
    """Ranks, tail and head: (1, 2.5), (4, 1), (11, 2)."""
    better = np.array([[0, 1], [3, 0], [8, 1]])
    equal = np.array([[0, 1], [0, 0], [4, 0]])
    return Ranking(PROTOCOLS["allneg"], "test", graph.test, better, equal, 5, 0)


def test_means_are_those_worked_out_by_hand(ranking: Ranking, graph: Graph) -> None:
    report = Report.of(ranking, graph)
    assert report.mrr == pytest.approx((1 + 1 / 2.5 + 1 / 4 + 1 + 1 / 11 + 1 / 2) / 6)
    assert report.mr == pytest.approx((1 + 2.5 + 4 + 1 + 11 + 2) / 6)
    assert report.hits == pytest.approx({"1": 2 / 6, "3": 4 / 6, "10": 5 / 6})
    assert report.hits[10] == report.hits["10"]
    with pytest.raises(KeyError, match="no Hits@5; there are 1, 3, 10"):
        report.hits[5]
    assert report.count == 6
    assert report.candidates == 5


def test_a_rank_of_exactly_k_is_a_hit_and_a_half_more_is_none() -> None:
    hits = metrics_of(np.array([1.0, 1.5, 3.0, 3.5, 10.0, 10.5]))["hits"]
    assert hits == pytest.approx({"1": 1 / 6, "3": 3 / 6, "10": 5 / 6})


def test_each_side_counts_its_own_queries(ranking: Ranking, graph: Graph) -> None:
    sides = Report.of(ranking, graph).by_side
    assert sides["tail"]["mr"] == pytest.approx((1 + 4 + 11) / 3)
    assert sides["head"]["mr"] == pytest.approx((2.5 + 1 + 2) / 3)
    assert sides["tail"]["count"] == sides["head"]["count"] == 3


def test_relations_and_categories_partition_the_queries(ranking: Ranking, graph: Graph) -> None:
    report = Report.of(ranking, graph)
    by_relation, by_category = report.by_relation, report.by_category
    assert by_relation["next"]["category"] == "1-1"
    assert by_relation["in"]["category"] == "n-1"
    assert by_relation["next"]["mr"] == pytest.approx((1 + 2.5) / 2)
    assert by_relation["in"]["tail"]["mr"] == pytest.approx((4 + 11) / 2)
    assert by_relation["in"]["head"]["mr"] == pytest.approx((1 + 2) / 2)
    assert set(by_category) == {"1-1", "n-1"}
    assert by_category["n-1"]["head"]["hits"]["1"] == pytest.approx(1 / 2)
    for parts in (by_relation, by_category, report.by_side):
        assert sum(part["count"] for part in parts.values()) == report.count
        whole = sum(part["mrr"] * part["count"] for part in parts.values()) / report.count
        assert whole == pytest.approx(report.mrr)


def test_a_relation_without_queries_is_not_reported(graph: Graph) -> None:
    one = np.zeros((1, 2), dtype=np.int64)
    ranking = Ranking(PROTOCOLS["allneg"], "test", graph.test[:1], one, one, 5, 2)
    assert set(Report.of(ranking, graph).by_relation) == {"next"}


def test_optimistic_and_pessimistic_ranks_enclose_the_middle(
    ranking: Ranking, graph: Graph
) -> None:
    report = Report.of(ranking, graph)
    assert report.optimistic["mr"] == pytest.approx((1 + 2 + 4 + 1 + 9 + 2) / 6)
    assert report.pessimistic["mr"] == pytest.approx((1 + 3 + 4 + 1 + 13 + 2) / 6)
    assert report.optimistic["mrr"] > report.mrr > report.pessimistic["mrr"]


def test_triples_with_unseen_entities_are_counted_and_measured(
    ranking: Ranking, graph: Graph
) -> None:
    unseen = Report.of(ranking, graph).unseen
    assert (unseen["triples"], unseen["dropped"], unseen["count"]) == (1, 0, 2)
    assert unseen["mr"] == pytest.approx((11 + 2) / 2)


def test_dropped_triples_are_counted(graph: Graph) -> None:
    zeros = np.zeros((2, 2), dtype=np.int64)
    ranking = Ranking(PROTOCOLS["pykeen"], "test", graph.test[:2], zeros, zeros, 4, 1)
    assert Report.of(ranking, graph).unseen == {"triples": 0, "dropped": 1}


def test_a_report_holds_its_protocol(ranking: Ranking, graph: Graph) -> None:
    rules = Report.of(ranking, graph).protocol
    assert rules["name"] == "allneg"
    assert rules["split"] == "test"
    assert rules["filter"] == ["train", "valid", "test"]
    assert rules["in_words"] == PROTOCOLS["allneg"].in_words("test")


def test_a_report_survives_json(ranking: Ranking, graph: Graph) -> None:
    report = Report.of(ranking, graph)
    text = json.dumps(report.to_json(), allow_nan=False)
    assert Report.from_json(json.loads(text)) == report
    assert {"mrr", "hits", "by_side", "by_relation", "count", "protocol"} <= set(json.loads(text))


def test_a_new_metric_is_one_line_and_old_reports_stay_readable(
    ranking: Ranking, graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = json.loads(json.dumps(Report.of(ranking, graph).to_json()))
    monkeypatch.setitem(METRICS, "mlr", np.log2)  # a mean of logarithms
    report = Report.of(ranking, graph)
    wanted = np.log2([1, 2.5, 4, 1, 11, 2]).mean()
    tables = (report.metrics, report.to_json())
    assert [table["mlr"] for table in tables] == pytest.approx([wanted] * 2)
    assert report.by_relation["next"]["head"]["mlr"] == pytest.approx(np.log2(2.5))
    assert by_heading(report.metrics)["MLR"] == report.metrics["mlr"]
    headings = list(by_heading(report.metrics))
    assert [name for name in headings if "Hits" in name] == ["Hits@1", "Hits@3", "Hits@10"]
    assert headings[0] == "MRR"
    assert f"MLR {wanted:.4f}" in repr(report)
    # Written before the metric existed: it is missing, and all else is there.
    earlier = Report.from_json(old)
    assert earlier.mrr == report.mrr
    assert by_heading(earlier.metrics)["MLR"] is None
    assert "MLR" not in repr(earlier)


def test_fields_of_a_newer_version_do_not_matter(ranking: Ranking, graph: Graph) -> None:
    content = Report.of(ranking, graph).to_json()
    tables = {name: {**content[name], "new": 1} for name in ("optimistic", "unseen", "protocol")}
    newer = Report.from_json({**content, **tables, "new": 0.5, "by_weekday": {}})
    assert (newer.mrr, newer.hits) == (content["mrr"], content["hits"])
    assert newer.to_json()["new"] == 0.5


@pytest.mark.parametrize("name", ["mrr", "hits", "count", "by_side", "unseen", "protocol"])
def test_without_a_field_of_the_first_version_it_is_not_a_report(
    ranking: Ranking, graph: Graph, name: str
) -> None:
    content = Report.of(ranking, graph).to_json()
    del content[name]
    with pytest.raises(TypeError, match="not a report"):
        Report.from_json(content)
