"""Baselines against a naive implementation that scores every entity."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator

from allneg.evaluation import PROTOCOLS, Report, evaluate_baselines
from allneg.evaluation.baselines import rank_baselines
from allneg.evaluation.ranks import Protocol
from allneg.graph import Graph, read_graph

ScoredGraph = Callable[..., Any]
SEEN = replace(PROTOCOLS["allneg"], filter="seen")


def naive_ranks(graph: Graph, split: str, protocol: Protocol) -> dict[str, list[list[float]]]:
    """The ranks of triples of seen entities and relations, if the protocol drops the others."""
    train = {tuple(triple) for triple in graph.train.tolist()}
    facts = {
        tuple(triple)
        for name in protocol.filter_splits(split)
        for triple in graph.split(name).tolist()
    }
    entities, drops = range(graph.n_entities), protocol.unseen == "dropped"
    if drops:
        entities = [e for e in entities if any(e in (h, t) for h, _, t in train)]
    confidence = {}
    for r in range(graph.n_relations):
        for s in range(graph.n_relations):
            found = [(t, r, h) in train for h, q, t in train if q == s]
            confidence[r, s] = sum(found) / max(1, len(found))

    def share(r: int, entity: int, column: int) -> float:
        others = {triple[2 - column] for triple in train if triple[1] == r}
        having = {
            triple[2 - column] for triple in train if triple[1] == r and triple[column] == entity
        }
        return len(having) / max(1, len(others))

    def best(h: int, r: int, t: int) -> float:
        rules = [confidence[r, s] for s in range(graph.n_relations) if (t, s, h) in train]
        return max((rule for rule in rules if rule >= 0.1), default=0.0)

    def scores(h: int, r: int, t: int, column: int) -> tuple[float, float, float]:
        one, other = share(r, (h, r, t)[column], column), best(h, r, t)
        return one, other, one + other * (1 - one)

    ranks: dict[str, list[list[float]]] = {"frequency": [], "rules": [], "combined": []}
    for h, r, t in graph.split(split).tolist():
        if drops and not ({h, t} <= set(entities) and any(q == r for _, q, _ in train)):
            continue
        sides = [
            ([(h, r, e) for e in entities if (h, r, e) not in facts], 2),
            ([(e, r, t) for e in entities if (e, r, t) not in facts], 0),
        ]
        columns = []
        for others, column in sides:
            answer = np.array(scores(h, r, t, column))
            table = np.array([scores(*other, column) for other in others]).reshape(-1, 3)
            columns.append(1 + (table > answer).sum(0) + (table == answer).sum(0) / 2)
        for i, name in enumerate(ranks):
            ranks[name].append([float(column[i]) for column in columns])
    return ranks


@pytest.fixture(params=range(4))
def graph(request: pytest.FixtureRequest, scored_graph: ScoredGraph) -> Graph:
    """11 entities of which train has 9; relation 1 is nearly the inverse of 0, relation 2 is
    nearly symmetric, relation 4 is not in train. A triple of train occurs twice."""
    generator = Generator().manual_seed(request.param)
    pairs = torch.randint(9, (24, 2), generator=generator).tolist()
    train = [(h, 0, t) for h, t in pairs[:10]] + [(t, 1, h) for h, t in pairs[:8]]
    train += [(h, 2, t) for h, t in pairs[10:18]] + [(t, 2, h) for h, t in pairs[10:16]]
    train += [(h, 3, t) for h, t in pairs[18:]]
    mixed = list(dict.fromkeys(train))
    order = torch.randperm(len(mixed), generator=generator).tolist()
    shuffled = [mixed[i] for i in order]
    more = [(9, 0, 1), (2, 1, 10), (9, 2, 10), (3, 4, 4)]
    train = [*shuffled[10:], shuffled[10]]
    made: Graph = scored_graph(
        torch.zeros(5, 11, 11), train, [*shuffled[:5], *more[:2]], [*shuffled[5:10], *more[2:]]
    ).graph
    return made


@pytest.mark.parametrize("split", ["train", "valid", "test"])
@pytest.mark.parametrize("protocol", [PROTOCOLS["allneg"], SEEN, PROTOCOLS["pykeen"]])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_ranks_are_those_of_the_naive_implementation(
    graph: Graph, split: str, protocol: Protocol, device: str
) -> None:
    expected = naive_ranks(graph, split, protocol)
    found = rank_baselines(graph, split, protocol, torch.device(device))
    assert {name: ranking.ranks.tolist() for name, ranking in found.items()} == expected
    assert all(len(set(map(str, ranks))) > 1 for ranks in expected.values())
    dropped = len(graph.split(split)) - len(expected["rules"])
    assert {ranking.dropped for ranking in found.values()} == {dropped}


def test_ties_follow_the_protocol(graph: Graph) -> None:
    middle, last = (rank_baselines(graph, "test", PROTOCOLS[name]) for name in ("allneg", "kbc"))
    for name, ranking in middle.items():
        assert last[name].ranks.tolist() == (1.0 + ranking.better + ranking.equal).tolist()


def test_an_inverse_relation_answers_every_query(scored_graph: ScoredGraph) -> None:
    chain = [(i, 0, i + 1) for i in range(6)]
    train = [*chain[:5], *((t, 1, h) for h, _, t in chain)]
    graph = scored_graph(torch.zeros(2, 7, 7), train, [], chain[5:]).graph
    found = evaluate_baselines(graph)
    assert found["rules"]["mrr"] == 1
    assert found["rules"]["by_relation"] == {"r0": {"mrr": 1, "tail": 1, "head": 1}}
    # Five of the six entities that are left are tails of one head each; the answer is none.
    assert found["frequency"]["by_side"]["tail"]["mr"] == 6 + 1 / 2
    assert found["combined"]["mrr"] == 1


def test_a_report_with_baselines_survives_json(graph: Graph) -> None:
    ranking = rank_baselines(graph, "test", PROTOCOLS["allneg"])["combined"]
    report = replace(Report.of(ranking, graph), baselines=evaluate_baselines(graph))
    content = json.loads(json.dumps(report.to_json()))
    assert Report.from_json(content) == report
    mrrs = [table["by_relation"]["r4"]["head"] for table in report.baselines.values()]
    assert report.best_baseline("r4", "head") == max(mrrs)
    content["baselines"]["rules"]["by_relation"]["r4"]["head"] = "high"
    with pytest.raises(TypeError, match="not a report"):
        Report.from_json(content)
    del content["baselines"]["rules"]["by_relation"]["r4"]
    with pytest.raises(TypeError, match="not a report: 'r4'"):
        Report.from_json(content)
    del content["baselines"]  # as in a file of an earlier version
    assert Report.from_json(content) == replace(report, baselines={})
    assert Report.from_json(content).best_baseline("r4", "head") is None


def test_a_large_graph_has_no_baselines(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allneg.evaluation.baselines.MOST_TRIPLES", len(graph.train) - 1)
    assert evaluate_baselines(graph) == {}


@pytest.mark.slow
def test_the_documented_numbers_are_those_of_the_published_graphs(shared_data: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
    table = page.partition("| test MRR |")[2].partition("\n\n")[0].splitlines()
    found = [
        evaluate_baselines(read_graph(name.strip().lower())) for name in table[0].split("|")[:-1]
    ]
    assert found[1]["rules"]["mrr"] == pytest.approx(0.937, abs=0.001)  # WN18's inverse relations
    for name, line in zip(found[0], table[2:], strict=True):
        mrrs = [f"{table[name]['mrr']:.3f}"[1:] for table in found]
        assert line == f"| `{name}` | {' | '.join(mrrs)} |"
