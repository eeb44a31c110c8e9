"""Every URL conforms to the OpenAPI document, whatever the request."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from allneg.serve.loaded_run import LoadedRun

pytest.importorskip("fastapi", reason="the service needs allneg[serve]")

KEPT = (
    "not_a_server_error", "status_code_conformance", "content_type_conformance",
    "response_schema_conformance",
)  # fmt: skip
ADDRESSES = [
    "/healthz", "/v1/models", "/v1/entities", "/v1/relations", "/v1/predict", "/v1/explain",
    "/v1/entity", "/v1/facts", "/v1/neighbours", "/v1/map", "/v1/metrics", "/v1/curves",
    "/v1/ask", "/v1/missing", "/v1/suspicious",
]  # fmt: skip

REAL = {"head": "France", "tail": "Europe", "relation": "in", "name": "Paris", "model": "run"}


@pytest.fixture(scope="module")
def document(unlabelled: LoadedRun) -> Any:
    schemathesis = pytest.importorskip("schemathesis", reason="schemathesis is not installed")
    from allneg.serve.app import make_app
    from allneg.serve.workers import Workers

    app = make_app({"run": unlabelled}, Workers(), ["localhost", "testserver"])
    return schemathesis.openapi.from_asgi("/openapi.json", app)


def test_the_document_names_every_address(document: Any) -> None:
    assert sorted(document.raw_schema["paths"]) == sorted(ADDRESSES)


@pytest.mark.battery(67)
@pytest.mark.parametrize("address", ADDRESSES)
def test_answers_are_those_of_the_document(document: Any, address: str) -> None:
    from schemathesis import checks  # in one worker only: it takes a second

    @settings(
        max_examples=15,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=document[address]["GET"].as_strategy())
    def check(case: Any) -> None:
        # A query without head, relation and tail is well-formed, but an error; so are a map by
        # t-SNE if openTSNE is not installed, and a text that is no question or no type.
        refuses = address in ("/v1/predict", "/v1/map", "/v1/ask", "/v1/missing")
        but = [checks.positive_data_acceptance] if refuses else []
        case.call_and_validate(excluded_checks=but)
        # Generated names are unknown: repeat the request with known ones.
        for name in REAL.keys() & case.query.keys():
            case.query[name] = REAL[name]
        case.call_and_validate(checks=[getattr(checks, name) for name in KEPT])

    check()
