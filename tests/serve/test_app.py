"""The URLs, without a socket: their answers and their errors."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import pytest
from starlette.testclient import TestClient

from allneg.predict.predictor import load
from allneg.runs import Run
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import HEADERS
from allneg.serve.workers import Workers

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
from allneg.serve.app import make_app

PREDICT = "/v1/predict?relation=borders&head=France"


def api_error(answer: Any, status: int, code: str) -> dict[str, Any]:
    """The error of a response, in the form of all errors."""
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/json")
    data = json.loads(answer.content)
    assert list(data) == ["error"]
    assert set(data["error"]) == {"code", "message", "near"}
    assert data["error"]["code"] == code
    assert "Traceback" not in answer.text
    error: dict[str, Any] = data["error"]
    return error


def test_healthz_answers_ok(client) -> None:
    assert client.get("/healthz").json() == {"status": "ok"}


def test_models_are_listed_with_their_examples(client, loaded: LoadedRun) -> None:
    data = client.get("/v1/models").json()
    assert [item["id"] for item in data["models"]] == ["run", "run-2"]
    assert data["models"][0]["mrr"] == loaded.run.report.mrr
    for example in data["examples"]["run"]:
        params = {name: value for name, value in example.items() if value is not None}
        assert client.get("/v1/predict", params=params).status_code == 200


@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("side, entity", [("head", "France"), ("tail", "Europe")])
def test_predictions_equal_those_of_the_predictor(
    client, toy_run: Run, side: str, entity: str, hide: bool
) -> None:
    params = {side: entity, "relation": "in", "k": 5, "hide_known": hide, "model": "run-2"}
    data = client.get("/v1/predict", params=params).json()
    predictor = load(toy_run.folder, device="cpu")
    expected = (predictor.tails if side == "head" else predictor.heads)(entity, "in", 5, hide)
    numbers = ("entity", "score", "share", "known", "calibrated")
    assert [{name: item[name] for name in numbers} for item in data["answers"]] == [
        item.to_json() for item in expected
    ]
    assert [item["rank"] for item in data["answers"]] == list(range(1, len(expected) + 1))
    assert data["question"] == {"head": None, "tail": None, "relation": "in", side: entity}


def test_predictions_are_labelled_and_calibrated(client) -> None:
    data = client.get("/v1/predict?relation=borders&tail=Spain&k=12").json()
    assert {item["entity"]: item["label"] for item in data["answers"]}["France"] == (
        "French Republic"
    )
    calibrated = [item["calibrated"] for item in data["answers"]]
    assert calibrated == sorted(calibrated, reverse=True)
    assert "valid" in data["calibration"]


def test_without_valid_nothing_is_calibrated(loaded: LoadedRun) -> None:
    none = copy.copy(loaded)
    train = {"train": loaded.predictor.known["train"]}
    none.predictor = replace(loaded.predictor, known=train, stored=None)
    none.calibration = none.predictor.calibration
    found = none.predictor.answers([("tail", "France", "in")])[0]
    data = none.predicted(("tail", "France", "in"), found, 0.0)
    assert data.calibration is None
    assert {item.calibrated for item in data.answers} == {None}


def test_two_entities_ask_for_the_relation(client, loaded: LoadedRun) -> None:
    data = client.get("/v1/predict?head=Paris&tail=France").json()
    assert data["question"] == {"head": "Paris", "relation": None, "tail": "France"}
    assert {item["relation"]: item["known"] for item in data["answers"]} == {
        "in": "train",
        "capital_of": "train",
        "borders": None,
    }
    assert sum(item["share"] for item in data["answers"]) == pytest.approx(1)
    for item in data["answers"]:
        tails = loaded.predictor.tails("Paris", item["relation"], k=12)
        score = {other.entity: other.score for other in tails}["France"]
        assert item["score"] == pytest.approx(score, rel=1e-5)
    new = client.get("/v1/predict?head=Paris&tail=France&hide_known=true").json()
    assert [item["relation"] for item in new["answers"]] == ["borders"]


@pytest.mark.parametrize(
    "address",
    [
        "/v1/entities?q=fra",
        "/v1/relations?head=Paris",
        "/v1/explain?head=Paris&relation=in&tail=Europe&side=head",
        "/v1/entity?name=France",
        "/v1/facts?name=France&relation=borders&direction=out",
        "/v1/neighbours?name=France&k=3",
        "/v1/map?relation=in",
        "/v1/metrics",
    ],
)
def test_every_url_answers_in_json(client, address: str) -> None:
    answer = client.get(address)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()


@pytest.mark.parametrize(
    "query", ["", "?head=Paris", "?relation=in", "?head=Paris&relation=in&tail=France"]
)
def test_a_query_has_two_of_three_parts(client, query: str) -> None:
    error = api_error(client.get("/v1/predict" + query), 422, "bad_parameter")
    assert "two of head, relation and tail" in error["message"]


def test_unknown_names_come_with_close_names(client) -> None:
    error = api_error(client.get("/v1/predict?head=Frence&relation=in"), 404, "unknown_entity")
    assert error["near"] == ["France"]
    error = api_error(client.get("/v1/predict?head=France&relation=im"), 404, "unknown_relation")
    error = api_error(client.get("/v1/metrics?model=other"), 404, "unknown_model")
    assert error["near"] == ["run", "run-2"]


def test_an_unknown_or_repeated_parameter_is_an_error(client) -> None:
    error = api_error(client.get(PREDICT + "&hide=1"), 422, "bad_parameter")
    assert error["message"] == "'hide': unknown or repeated parameter"
    api_error(client.get(PREDICT + "&head=Spain"), 422, "bad_parameter")
    error = api_error(client.get(PREDICT + "&k=abc"), 422, "bad_parameter")
    assert error["message"].startswith("the parameter k is wrong: Input should be a valid integer")


def test_a_path_may_be_percent_encoded(client) -> None:
    assert client.get("/v1/%70redict?head=France&relation=in").status_code == 200


def test_only_get_is_answered(client) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        answer = client.request(method, "/v1/models")
        api_error(answer, 405, "bad_method")
        assert answer.headers["allow"] == "GET"


def test_a_diverged_model_is_reported_and_an_unexpected_error_hides_its_details(
    client, loaded: LoadedRun, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("a secret /path")

    monkeypatch.setattr("allneg.serve.views.entity_page", fail)
    error = api_error(client.get("/v1/entity?name=France"), 500, "internal")
    assert "secret" not in json.dumps(error)
    assert "a secret /path" in caplog.text  # the log has it
    values = loaded.predictor.tables.relations
    before = values.clone()
    try:
        values[:, 0] = float("nan")
        error = api_error(client.get("/v1/predict?relation=in&head=Rome"), 500, "internal")
        assert "diverged" in error["message"]
    finally:
        values.copy_(before)


HOSTILE = {
    "empty": "",
    "long": "x" * 4097,
    "control": "\x1b[2J\x00\r\n",
    "right to left": "‮ecnarF",
    "zero width": "Fra​nce",
    "markup": "<script>alert(1)</script>",
    "quote": "'\"&<>",
    "template": "{{7*7}}${7*7}",
}


@pytest.mark.battery(37)
@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize(
    "address, others",
    [
        ("/v1/predict", {"head": None, "relation": "in"}),
        ("/v1/predict", {"head": "France", "relation": None}),
        ("/v1/entity", {"name": None}),
        ("/v1/neighbours", {"name": None}),
        ("/v1/facts", {"name": None, "relation": "in", "direction": "in"}),
        ("/v1/facts", {"name": "France", "relation": None, "direction": "in"}),
        ("/v1/explain", {"head": "France", "relation": "in", "tail": None}),
        ("/v1/map", {"relation": None}),
        ("/v1/metrics", {"model": None}),
        ("/v1/relations", {"head": None}),
    ],
)
def test_hostile_names_are_errors(client, address: str, others: dict, text: str) -> None:
    params = {name: text if value is None else value for name, value in others.items()}
    answer = client.get(address, params=params)
    assert answer.status_code in (404, 422)
    error = api_error(answer, answer.status_code, json.loads(answer.content)["error"]["code"])
    assert error["code"].startswith(("unknown_", "bad_parameter"))
    assert answer.headers["x-content-type-options"] == "nosniff"  # browsers never treat it as HTML


@pytest.mark.battery(37)
@pytest.mark.parametrize("typed", [text for text in HOSTILE.values() if len(text) <= 4096])
def test_anything_may_be_typed_into_a_search(client, typed: str) -> None:
    assert client.get("/v1/entities", params={"q": typed}).status_code == 200
    assert client.get("/v1/relations", params={"q": typed}).status_code == 200


@pytest.mark.battery(37)
@pytest.mark.parametrize("k", ["0", "-1", "1000000000", "x", "1.5", "", "1e3", "９" * 50, "null"])
def test_the_number_of_answers_is_limited(client, k: str) -> None:
    api_error(client.get(PREDICT, params={"head": "France", "relation": "in", "k": k}), 422,
            "bad_parameter")  # fmt: skip
    api_error(client.get("/v1/neighbours", params={"name": "France", "k": k}), 422, "bad_parameter")


@pytest.mark.battery(37)
def test_a_long_text_is_too_large(client) -> None:
    api_error(client.get("/v1/entities?q=" + "x" * 60_000), 413, "too_large")
    api_error(client.get("/v1/entities?q=" + "x" * 4097), 422, "bad_parameter")
    assert client.get("/v1/entities?q=" + "x" * 4096).status_code == 200
    assert client.get(PREDICT + "&k=1000").status_code == 200


@pytest.mark.battery(65)
@pytest.mark.parametrize("character", ["x", "é", "🌍"])
def test_an_entity_with_a_name_of_4000_characters_is_served(
    toy_run: Run, character: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, graph = character * 4000, toy_run.graph
    entities = [name if entity == "Paris" else entity for entity in graph.vocabulary.entities]
    renamed = replace(graph, vocabulary=replace(graph.vocabulary, entities=entities))
    monkeypatch.setattr(Run, "graph", renamed)
    run = LoadedRun.load(toy_run.folder, "long", {}, "cpu")
    client = TestClient(make_app({"long": run}, Workers(), ["testserver"]))
    assert client.get("/v1/entities", params={"q": name}).json()["entities"][0]["name"] == name
    for address, params in {
        "/v1/entity": {"name": name},
        "/v1/facts": {"name": name, "relation": "in", "direction": "out"},
        "/v1/neighbours": {"name": name},
        "/v1/predict": {"head": name, "relation": "in"},
        "/v1/relations": {"head": name},
        "/v1/explain": {"head": name, "relation": "in", "tail": "Europe"},
    }.items():
        assert client.get(address, params=params).status_code == 200, address


PATHS = [
    "/static/../app.py",
    "/static/..%2fapp.py",
    "/static/%2e%2e%2fapp.py",
    "/static/%252e%252e%252fapp.py",
    "/static/..%5capp.py",
    "/static/index.html%00",
    "/static//index.html",
    "/static/",
    "/static/%2fetc%2fpasswd",
    "/static/INDEX.HTML",
    "/../../etc/passwd",
    "/v1/../healthz",
    "/docs",
    "/redoc",
    "/index.html",
    "//healthz",
    "/healthz/",
]


@pytest.mark.battery(38)
@pytest.mark.parametrize("path", PATHS)
def test_nothing_outside_the_list_is_opened(
    client, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("a file was opened for a client")

    monkeypatch.setattr("builtins.open", never)
    monkeypatch.setattr("pathlib.Path.open", never)
    api_error(_raw(client, path), 404, "not_found")


def _raw(client, path: str) -> Any:
    """The response to a path that the client does not normalize."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        scope = {**scope, "path": unquote(path), "raw_path": path.encode()}
        await client.app(scope, receive, send)

    return type(client)(app).get("/")


@pytest.mark.battery(62)
@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/v1/models", "/v1/predict", "/openapi.json", "/static/app.js"]
)
def test_a_line_feed_after_a_path_is_another_path(client, path: str) -> None:
    for end in ("%0a", "%0A%0a", "%0d%0a"):
        api_error(client.get(path + end), 404, "not_found")


@pytest.mark.battery(63)
@pytest.mark.parametrize("change", ["deleted", "damaged", "a folder"])
def test_a_run_that_is_deleted_or_damaged_is_still_served(toy_copy: Run, change: str) -> None:
    run = LoadedRun.load(toy_copy.folder, "copy", {}, "cpu")
    client = TestClient(make_app({"copy": run}, Workers(), ["testserver"]))
    report, metrics = toy_copy.report.to_json(), toy_copy.folder / "metrics.jsonl"
    if change == "deleted":
        shutil.rmtree(toy_copy.folder)
    else:
        metrics.unlink()
        metrics.mkdir() if change == "a folder" else metrics.write_text("[\n")
    assert client.get("/v1/metrics").json()["report"] == report
    assert client.get("/v1/curves").json() == {"runs": [{"model": "copy", "curves": []}]}
    assert client.get(PREDICT).status_code == 200


@pytest.mark.battery(38)
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "testserver.evil.example",
        "",
        "127.0.0.1@evil",
        "[::1",
        "testserver ",
        "[::1]evil",
        "testserver:99@evil",
        "testserver:",
        "testserver:123456",
    ],
)
def test_a_foreign_host_is_refused(client, host: str) -> None:
    for path in ("/", "/healthz", "/v1/models", "/nothing"):
        api_error(client.get(path, headers={"host": host}), 400, "bad_host")


@pytest.mark.battery(38)
def test_a_host_may_have_a_port_and_capitals(client) -> None:
    assert client.get("/healthz", headers={"host": "TestServer:8000"}).status_code == 200


@pytest.mark.battery(38)
def test_a_foreign_origin_may_not_read_the_answer(client) -> None:
    answer = client.get("/v1/models", headers={"origin": "https://evil.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.battery(38)
def test_a_large_body_is_refused(client) -> None:
    for method in ("GET", "POST"):
        api_error(client.request(method, "/v1/models", content=b"x" * 30_000_000), 413, "too_large")
    assert client.request("GET", "/v1/models", content=b"x" * 1024).status_code == 200


@pytest.mark.battery(38)
def test_a_body_without_end_is_refused(client) -> None:
    def endless():
        for _ in range(10**5):  # far more than the service reads
            yield b"x" * 100

    api_error(client.request("GET", "/v1/models", content=endless()), 413, "too_large")


@pytest.mark.battery(40)
@pytest.mark.parametrize(
    "path", ["/", "/healthz", "/openapi.json", "/v1/models", "/nothing", "/static/index.html",
             "/v1/predict"]
)  # fmt: skip
def test_every_answer_has_the_headers(client, path: str) -> None:
    answer = client.get(path)
    for name, value in HEADERS.items():
        assert answer.headers.get_list(name) == [value]
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "server" not in answer.headers


def test_the_page_is_served_from_the_package(client) -> None:
    page = client.get("/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert page.content == client.get("/static/index.html").content
    assert page.text.lstrip().lower().startswith("<!doctype html>")
