"""`evaluate`: from a split, a protocol and a block size to a report."""

from __future__ import annotations

import pytest

from allneg.evaluation import PROTOCOLS, Report, evaluate
from allneg.evaluation.ranks import rank
from allneg.graph import Graph
from allneg.models import MODELS, ComplEx, Model
from allneg.scoring import Shard, Tables


def tables_for(model: Model, graph: Graph) -> Tables:
    return Tables.create(model, graph.n_relations, Shard.whole(graph.n_entities), True, seed=0)


@pytest.mark.parametrize("name", PROTOCOLS)
@pytest.mark.parametrize("split", ["valid", "test"])
def test_evaluate_reports_the_ranking(name: str, split: str, tiny_graph: Graph) -> None:
    model = ComplEx(dim=4, scale=0.5)
    tables = tables_for(model, tiny_graph)
    found = evaluate(model, tables, tiny_graph, split, PROTOCOLS[name])
    ranking = rank(model, tables, tiny_graph, split, PROTOCOLS[name], 1 << 20)
    assert found == Report.of(ranking, tiny_graph)
    assert found.count == 2 * len(tiny_graph.split(split))


def test_the_default_is_test_under_the_protocol_allneg(tiny_graph: Graph) -> None:
    model = ComplEx(dim=4, scale=0.5)
    rules = evaluate(model, tables_for(model, tiny_graph), tiny_graph).protocol
    assert (rules["name"], rules["split"]) == ("allneg", "test")


@pytest.mark.parametrize("name", MODELS)
def test_the_block_size_does_not_change_the_report(name: str, tiny_graph: Graph) -> None:
    model = MODELS[name](dim=4, scale=0.5)
    tables = Tables.create(
        model, tiny_graph.n_relations, Shard.whole(tiny_graph.n_entities), True, seed=0
    )
    reports = [evaluate(model, tables, tiny_graph, block=block) for block in (1, 30, 1 << 20)]
    assert reports[0] == reports[1] == reports[2]


def test_padding_does_not_change_the_report(tiny_graph: Graph) -> None:
    model = ComplEx(dim=4, scale=0.5)
    tables = tables_for(model, tiny_graph)
    padded = tables.padded(64)
    assert len(padded.entities) == 64
    assert evaluate(model, padded, tiny_graph) == evaluate(model, tables, tiny_graph)
