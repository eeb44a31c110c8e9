"""Missing and suspicious facts, and multi-hop questions, without a socket."""

from __future__ import annotations

import json
import math
import threading
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from allneg.errors import DataError
from allneg.evaluation.within import Within
from allneg.predict.fact_files import write_rows
from allneg.serve import review
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.review import read_suspicious
from allneg.serve.workers import Workers

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
from allneg.serve.app import make_app

SUSPICIOUS = {
    "head": "France", "relation": "borders", "tail": "Paris", "probability": 0.01,
    "head_rank": 3.5, "tail_rank": 9.0, "expected": "Spain", "reason": "a city borders nothing",
}  # fmt: skip


def facts_of(data: dict[str, Any]) -> list[tuple[str, str, str]]:
    return [(fact["head"], fact["relation"], fact["tail"]) for fact in data["facts"]]


@pytest.mark.parametrize("within", [None, "seen", "type=in:Europe"])
def test_missing_facts_are_those_of_the_predictor(
    client, loaded: LoadedRun, within: str | None
) -> None:
    params = {"relation": "in", "within": within, "min_probability": 0.001, "k": 20}
    data = client.get("/v1/missing", params={n: v for n, v in params.items() if v}).json()
    allowed = Within.parse(within, loaded.graph) if within else None
    expected = loaded.predictor.complete(20, 0.001, ["in"], allowed)
    assert expected
    names = ("head", "relation", "tail")
    for found, fact in zip(data["facts"], map(vars, expected), strict=True):
        assert [found[name] for name in names] == [fact[name] for name in names]
        assert found["probability"] == pytest.approx(fact["probability"], rel=1e-4)
        assert found["score"] == pytest.approx(fact["score"], rel=1e-4)
    assert data["labels"].get("France") in (None, "French Republic")
    assert data["start"] == 0
    assert data["stop"] == data["heads"] <= loaded.graph.n_entities


def test_a_request_asks_only_as_many_heads_as_its_work_allows(
    client, loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, per_score = loaded.graph, loaded.predictor.model.entity_width + review._PER_SCORE
    monkeypatch.setattr(review, "_MOST_PRODUCTS", 5 * graph.n_entities * per_score)
    parts, start, found = [], 0, []
    while start < graph.n_entities:
        data = client.get(f"/v1/missing?relation=in&start={start}&k=1000").json()
        assert data["heads"] == graph.n_entities
        parts.append(data["stop"] - data["start"])
        start = data["stop"]
        found.append(facts_of(data))
    assert parts == [5, 5, graph.n_entities - 10]
    degree = {name: loaded.facts.degree[i] for name, i in graph.vocabulary.entity_ids.items()}
    first, *_, last = ([degree[head] for head, *_ in facts] for facts in found)
    assert min(first) >= max(last), "heads with most facts come first"
    every = loaded.predictor.complete(1000, 0.0, ["in"])
    assert sorted(chain(*found)) == sorted((fact.head, "in", fact.tail) for fact in every)
    nothing = client.get(f"/v1/missing?relation=in&start={start}").json()
    assert (nothing["facts"], nothing["stop"]) == ([], start)


def test_a_search_without_end_is_stopped(client, monkeypatch: pytest.MonkeyPatch) -> None:
    assert client.get("/v1/missing?relation=in&k=1000").json()["exact"]
    monkeypatch.setattr(review, "_MOST_SECONDS", -1)
    data = client.get("/v1/missing?relation=in&k=1000").json()
    assert (data["exact"], data["stop"]) == (False, data["heads"])
    assert data["facts"]


def test_missing_facts_never_open_a_file(client, tmp_path: Path) -> None:
    names = tmp_path / "names.txt"
    names.write_text("France\n")
    for within in (str(names), "/nowhere"):
        answer = client.get("/v1/missing", params={"relation": "in", "within": within})
        assert answer.status_code == 422
        assert "write seen or type=" in answer.json()["error"]["message"]
    answer = client.get("/v1/missing?relation=in&within=type=in:Atlantis")
    assert answer.json()["error"]["code"] == "bad_parameter"


def test_a_search_for_missing_facts_does_not_block_other_requests(
    client, loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, leave, found = threading.Event(), threading.Event(), []
    search = review.missing

    def slow(*about: Any) -> Any:
        began.set()
        assert leave.wait(10)
        return search(*about)

    monkeypatch.setattr(review, "missing", slow)
    ask = threading.Thread(
        target=lambda: found.append(client.get("/v1/missing?relation=in").status_code)
    )
    ask.start()
    assert began.wait(10)
    assert client.get("/v1/predict?head=France&relation=in").status_code == 200
    assert client.get("/v1/suspicious").status_code == 200
    assert not found
    leave.set()
    ask.join(10)
    assert found == [200]


def test_a_question_is_answered_as_by_the_predictor(client, loaded: LoadedRun) -> None:
    question = "?x : capital_of(?y, France), in(?y, ?x)"
    data = client.get("/v1/ask", params={"question": question, "k": 4, "facts": True}).json()
    expected = [answer.to_json() for answer in loaded.predictor.ask(question, 4, facts=True)]
    assert data["answers"] == json.loads(json.dumps(expected))
    assert data["labels"]["France"] == "French Republic"


@pytest.mark.parametrize(
    "question, at", [("?x : border(France, ?x)", 6), ("?x : in(France, ?x", 19)]
)
def test_a_wrong_question_names_the_character(client, question: str, at: int) -> None:
    answer = client.get("/v1/ask", params={"question": question})
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith(f"character {at}: ")


def test_suspicious_facts_are_those_of_the_file(loaded: LoadedRun, tmp_path: Path) -> None:
    facts = [SUSPICIOUS, {**SUSPICIOUS, "relation": "in"}, {**SUSPICIOUS, "tail": '"<b>",\\t'}]
    lines = tmp_path / "audit.jsonl"
    lines.write_text("".join(json.dumps(fact) + "\n" for fact in facts))
    table = tmp_path / "audit.tsv"
    rows = ["\t".join(map(str, fact.values())) for fact in facts]
    table.write_text("\n".join(rows) + "\n")
    found = read_suspicious(lines)
    assert [vars(fact) for fact in found] == facts
    assert read_suspicious(table) == found
    write_rows(tmp_path / "audit.csv", type(found[0]), found)
    assert read_suspicious(tmp_path / "audit.csv") == found
    app = make_app({"run": loaded}, Workers(), ["testserver"], found)
    with TestClient(app) as client:
        data = client.get("/v1/suspicious?k=1").json()
        assert data == {
            "facts": facts[:1], "labels": {"France": "French Republic"}, "total": 3,
            "relations": {"borders": 2, "in": 1},
        }  # fmt: skip
        assert client.get("/v1/suspicious?relation=borders&start=1").json()["facts"] == facts[2:]


@pytest.mark.parametrize(
    "name, text",
    [
        ("a.tsv", "France\tborders\tParis\n"),
        ("a.tsv", "\t".join(SUSPICIOUS) + "\n"),
        ("a.jsonl", json.dumps({**SUSPICIOUS, "probability": math.nan}) + "\n"),
        ("a.jsonl", "[1]\n"),
        ("a.jsonl", "\n"),
    ],
)
def test_another_file_is_no_audit(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=r"a\.\w+:\d: not a line of a file that `allneg audit`"):
        read_suspicious(tmp_path / name)
