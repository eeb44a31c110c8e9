"""A loaded run, and a client of the service for it."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator

import pytest

from allneg.runs import Run

if importlib.util.find_spec("starlette") is None:  # the tests of this folder need allneg[serve]
    collect_ignore_glob = ["test_*.py"]
else:
    from allneg.serve.loaded_run import LoadedRun

LABELS = {"France": "French Republic", "Sicily": "Sicilia", "Nowhere": "no entity"}


@pytest.fixture(scope="session")
def loaded(toy_run: Run) -> LoadedRun:
    return LoadedRun.load(toy_run.folder, "run", LABELS, "cpu")


@pytest.fixture(scope="session")
def unlabelled(toy_run: Run) -> LoadedRun:
    return LoadedRun.load(toy_run.folder, "run", {}, "cpu")


@pytest.fixture(scope="session")
def client(loaded: LoadedRun) -> Iterator[object]:
    """A client of the service, without a socket."""
    pytest.importorskip("fastapi", reason="the service needs allneg[serve]")
    testclient = pytest.importorskip("starlette.testclient")
    from allneg.serve.app import make_app
    from allneg.serve.workers import Workers

    workers, second = Workers(), copy.copy(loaded)
    second.id = "run-2"
    app = make_app({"run": loaded, "run-2": second}, workers, ["testserver"])
    with testclient.TestClient(app, raise_server_exceptions=False) as found:
        yield found
    assert workers.stop(seconds=5)
