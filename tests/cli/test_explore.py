from __future__ import annotations

import socket
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allneg.errors import Interrupted
from allneg.runs import Run

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")

from allneg.serve.loaded_run import LoadedRun


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would be served; the explorer ends at once as if by SIGTERM."""
    found: list[dict[str, Any]] = []

    def make_app(
        models: dict[str, LoadedRun], workers: object, hosts: list[str], suspicious: list[Any]
    ) -> dict[str, Any]:
        return {"models": models, "hosts": hosts, "suspicious": suspicious}

    def serve(app: dict[str, Any], listener: Any) -> None:
        found.append({**app, "address": listener.getsockname()})
        raise Interrupted("the explorer has stopped", 15)

    monkeypatch.setattr("allneg.serve.app.make_app", make_app)
    monkeypatch.setattr("allneg.serve.server.serve", serve)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return found


def test_runs_are_served_on_loopback(allneg: Callable, toy_run: Run, served: list) -> None:
    done = allneg("explore", toy_run.folder, toy_run.folder, "--no-browser", "--port", 0)
    assert done.code == 143
    assert list(served[0]["models"]) == ["run", "run-2"]
    assert served[0]["address"][0] == "127.0.0.1"
    assert served[0]["hosts"] == ["127.0.0.1", "localhost", "[::1]"]
    port = served[0]["address"][1]
    assert f"explorer: http://127.0.0.1:{port}/ (Ctrl-C ends it)" in done.err
    assert done.out == ""


def test_a_page_is_served_under_the_name_it_is_announced_by(
    allneg: Callable, toy_run: Run, served: list
) -> None:
    done = allneg("explore", toy_run.folder, "--no-browser", "--port", 0, "--host", "127.0.0.2")
    assert "explorer: http://127.0.0.2:" in done.err
    assert "127.0.0.2" in served[0]["hosts"]


def test_the_page_is_opened_in_a_browser_by_default(
    allneg: Callable, toy_run: Run, served: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Now:
        """A thread that runs its target in `start`."""

        def __init__(self, target: Callable, args: tuple, daemon: bool) -> None:
            self.work = lambda: target(*args)

        def start(self) -> None:
            self.work()

    monkeypatch.setattr("allneg.cli.explore.threading", SimpleNamespace(Thread=Now))
    monkeypatch.setattr("allneg.serve.workers.Workers.__init__", lambda self: None)
    monkeypatch.setattr("allneg.serve.workers.Workers.stop", lambda self, seconds: True)
    monkeypatch.setattr("webbrowser.open", opened.append)
    allneg("explore", toy_run.folder, "--no-browser", "--port", 0)
    assert opened == []
    allneg("explore", toy_run.folder, "--port", 0)
    assert opened == [f"http://127.0.0.1:{served[1]['address'][1]}/"]


def test_labels_are_read(allneg: Callable, toy_run: Run, served: list, tmp_path: Path) -> None:
    (tmp_path / "labels.tsv").write_text("France\tFrench Republic\n")
    labels = ("--labels", tmp_path / "labels.tsv", "--no-browser", "--port", 0)
    allneg("explore", toy_run.folder, *labels)
    assert served[0]["models"]["run"].labels == {"France": "French Republic"}
    (tmp_path / "labels.tsv").write_text("France\n")
    done = allneg("explore", toy_run.folder, *labels)
    assert done.code == 3
    assert "labels.tsv:1: expected name, tab, label" in done.err


def test_an_audit_is_read(allneg: Callable, toy_run: Run, served: list, tmp_path: Path) -> None:
    audit = tmp_path / "audit.tsv"
    audit.write_text("France\tborders\tParis\t0.01\t3\t9\tSpain\ta city\n")
    options = ("--audit", audit, "--no-browser", "--port", 0)
    allneg("explore", toy_run.folder, *options)
    assert [fact.tail for fact in served[0]["suspicious"]] == ["Paris"]
    audit.write_text("France\tborders\tParis\n")
    done = allneg("explore", toy_run.folder, *options)
    assert done.code == 3
    assert "audit.tsv:1: not a line of a file that `allneg audit` writes" in done.err


@pytest.mark.battery(40)
def test_other_machines_need_a_host_name_and_cause_a_warning(
    allneg: Callable, toy_run: Run, served: list
) -> None:
    wide = ("--host", "0.0.0.0", "--no-browser", "--port", 0)
    done = allneg("explore", toy_run.folder, *wide)
    assert done.code == 2
    assert "--allow-host NAME" in done.err
    assert served == []
    done = allneg("explore", toy_run.folder, *wide, "--allow-host", "kb.example")
    assert "everyone who reaches this machine can query these runs" in done.err
    assert served[0]["hosts"][-1] == "kb.example"
    assert served[0]["address"][0] == "0.0.0.0"


@pytest.mark.battery(40)
@pytest.mark.parametrize("name", ["http://a", "a:80", "a b", "", "a\n"])
def test_an_allowed_host_is_a_plain_name(allneg: Callable, toy_run: Run, name: str) -> None:
    done = allneg("explore", toy_run.folder, "--allow-host", name)
    assert done.code == 2
    assert "expected a plain host name" in done.err


@pytest.mark.battery(40)
def test_a_taken_port_is_an_error_before_loading(allneg: Callable, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = allneg("explore", tmp_path / "no-run", "--no-browser", "--port", port)
    assert done.code == 2
    assert f"port {port} on 127.0.0.1: Address already in use; choose another --port" in done.err


def test_a_folder_that_is_no_run_is_named(allneg: Callable, tmp_path: Path) -> None:
    done = allneg("explore", tmp_path, "--no-browser", "--port", 0)
    assert done.code == 4
    assert "not a run" in done.err


def test_without_the_extra_the_error_names_what_to_install(
    allneg: Callable, toy_run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "allneg.serve.app", raising=False)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = allneg("explore", toy_run.folder)
    assert done.code == 2
    assert "the explorer needs fastapi: pip install 'allneg[serve]'" in done.err


@pytest.mark.parametrize("new", [False, True])
def test_the_service_answers_like_predict(allneg: Callable, toy_run: Run, new: bool) -> None:
    from starlette.testclient import TestClient

    from allneg.serve.app import make_app
    from allneg.serve.workers import Workers

    query = ("--head", "France", "--relation", "in", "--top", 6, *(["--new"] if new else []))
    data = allneg("predict", toy_run.folder, *query, "--json", "--device", "cpu").json["answers"]
    loaded = LoadedRun.load(toy_run.folder, "run", {}, "cpu")
    with TestClient(make_app({"run": loaded}, Workers(), ["testserver"])) as client:
        params = {"head": "France", "relation": "in", "k": 6, "hide_known": new}
        answers = client.get("/v1/predict", params=params).json()["answers"]
        report = client.get("/v1/metrics").json()["report"]
    assert [{name: item[name] for name in data[0]} for item in answers] == data
    evaluated = allneg("evaluate", toy_run.folder, "--json", "--device", "cpu").json
    assert {name: evaluated[name] for name in report} == report
