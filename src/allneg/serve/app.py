"""The web service: its URLs and their parameters."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from allneg import __version__
from allneg.errors import AllnegError, printable
from allneg.graph.queries import Side
from allneg.serve import review, schemas, views
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.schemas import JsonResponse
from allneg.serve.server import MAX_NAME, ApiError, RequestChecks, error_response
from allneg.serve.workers import Batcher, Workers

Model = Annotated[str | None, Query(max_length=512, description="by default the first")]
Text = Annotated[str, Query(max_length=MAX_NAME)]
Name = Annotated[str, Query(min_length=1, max_length=MAX_NAME)]
OptionalName = Annotated[str | None, Query(min_length=1, max_length=MAX_NAME)]
Count = Annotated[int, Query(ge=1, le=1000)]
AnswerCount = Annotated[int, Query(ge=1, le=100)]
Start = Annotated[int, Query(ge=0, le=1 << 40)]
Method = Literal["pca", "tsne"]

_MEDIA_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css"}
_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": dict[str, schemas.Error]} for status in (400, 404, 413, 422, 500, 503)
}

api = APIRouter(responses=_ERRORS)


@dataclass(frozen=True)
class Service:
    """What all URLs share."""

    runs: Mapping[str, LoadedRun]
    workers: Workers
    batcher: Batcher
    models: schemas.Models
    suspicious: Sequence[schemas.SuspiciousFact]


def make_app(
    runs: Mapping[str, LoadedRun],
    workers: Workers,
    hosts: Iterable[str],
    suspicious: Sequence[schemas.SuspiciousFact] = (),
) -> ASGIApp:
    """The service for some loaded runs and the facts of an audit, under the names of some hosts."""
    app = FastAPI(
        title="allneg explorer", version=__version__, docs_url=None, redoc_url=None,
        redirect_slashes=False,
    )  # fmt: skip
    shown = {name: views.examples(run) for name, run in runs.items()}
    models = schemas.Models([run.card for run in runs.values()], shown)
    app.state.service = Service(runs, workers, Batcher(workers), models, suspicious)
    app.include_router(api)
    _add_page(app)
    for kind in (ApiError, AllnegError, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, error_response)
    return RequestChecks(app, hosts)


async def _service(request: Request) -> Service:
    """What all URLs share; an unknown or repeated parameter is an error."""
    url = request.app.openapi()["paths"][request.scope["path"]]["get"]
    known = {parameter["name"] for parameter in url.get("parameters", ())}
    names = [name for name, _ in request.query_params.multi_items()]
    if wrong := [name for name in names if name not in known or names.count(name) > 1]:
        raise ApiError("bad_parameter", f"{printable(wrong[0])}: unknown or repeated parameter")
    service: Service = request.app.state.service
    return service


async def _chosen_run(service: Shared, model: Model = None) -> LoadedRun:
    if model is None:
        return next(iter(service.runs.values()))
    if model not in service.runs:
        raise ApiError("unknown_model", "no model has this id", list(service.runs))
    return service.runs[model]


Shared = Annotated[Service, Depends(_service)]
Chosen = Annotated[LoadedRun, Depends(_chosen_run)]


@api.get("/healthz", response_model=dict[str, str])
async def healthz(_: Shared) -> JsonResponse:
    return JsonResponse({"status": "ok"})


@api.get("/v1/models", response_model=schemas.Models)
async def models(service: Shared) -> JsonResponse:
    return JsonResponse(service.models)


@api.get("/v1/entities", response_model=schemas.Entities)
async def entities(
    service: Shared, run: Chosen, q: Text = "", limit: AnswerCount = 20
) -> JsonResponse:
    return JsonResponse(await service.workers.run(lambda: run.entities(q, limit)))


@api.get("/v1/relations", response_model=dict[str, list[schemas.RelationName]])
async def relations(
    service: Shared, run: Chosen, q: Text = "", head: OptionalName = None
) -> JsonResponse:
    found = await service.workers.run(lambda: run.relations(q, head))
    return JsonResponse({"relations": found})


@api.get("/v1/predict", response_model=schemas.Predicted)
async def predict(
    service: Shared,
    run: Chosen,
    head: OptionalName = None,
    relation: OptionalName = None,
    tail: OptionalName = None,
    k: Count = 10,
    hide_known: bool = False,
) -> JsonResponse:
    """Give two of head, relation and tail; the answers are the third."""
    if (head, relation, tail).count(None) != 1:
        raise ApiError("bad_parameter", "give exactly two of head, relation and tail")
    if relation is None:
        ends = str(head), str(tail)
        found = await service.workers.run(lambda: run.relations_between(*ends, k, hide_known))
        return JsonResponse(found)
    side: Side = "tail" if tail is None else "head"
    query = side, str(head if tail is None else tail), relation
    names = run.vocabulary
    if query[1] not in names.entity_ids or relation not in names.relation_ids:
        # The search for similar names takes a while and would block other requests here.
        await service.workers.run(lambda: (run.entity_id(query[1]), run.relation_id(relation)))
    began = time.perf_counter()
    answers = await service.batcher.ask(run, query, k, hide_known)
    return JsonResponse(run.predicted(query, answers, time.perf_counter() - began))


@api.get("/v1/ask", response_model=schemas.Asked)
async def ask(
    service: Shared, run: Chosen, question: Name, k: AnswerCount = 10, facts: bool = False
) -> JsonResponse:
    """Answers to a multi-hop question, with the facts that they rest on."""
    return JsonResponse(await service.workers.run_long(lambda: views.ask(run, question, k, facts)))


@api.get("/v1/missing", response_model=schemas.Missing)
async def missing(
    service: Shared,
    run: Chosen,
    relation: Name,
    within: OptionalName = None,
    min_probability: Annotated[float, Query(ge=0, lt=1)] = 0.0,
    start: Start = 0,
    k: Count = 100,
) -> JsonResponse:
    """The most probable new facts with a relation, of as many heads as a request may ask."""
    options = relation, within, min_probability, start, k
    return JsonResponse(await service.workers.run_long(lambda: review.missing(run, *options)))


@api.get("/v1/suspicious", response_model=schemas.Suspicious)
async def suspicious(
    service: Shared, run: Chosen, relation: OptionalName = None, start: Start = 0, k: Count = 100
) -> JsonResponse:
    """The facts of the audit, from `start` on."""
    options = relation, start, k
    return JsonResponse(
        await service.workers.run(lambda: review.suspicious(run, service.suspicious, *options))
    )


@api.get("/v1/explain", response_model=schemas.Explanation)
async def explain(
    service: Shared, run: Chosen, head: Name, relation: Name, tail: Name, side: Side = "tail"
) -> JsonResponse:
    triple = head, relation, tail
    return JsonResponse(await service.workers.run(lambda: views.explain(run, triple, side)))


@api.get("/v1/entity", response_model=schemas.EntityPage)
async def entity(service: Shared, run: Chosen, name: Name) -> JsonResponse:
    return JsonResponse(await service.workers.run(lambda: views.entity_page(run, name)))


@api.get("/v1/facts", response_model=schemas.FactGroup)
async def facts(
    service: Shared,
    run: Chosen,
    name: Name,
    relation: Name,
    direction: schemas.Direction,
    start: Start = 0,
    k: Count = 100,
) -> JsonResponse:
    """The facts of an entity with one relation, from `start` on."""
    group = relation, direction
    found = await service.workers.run(lambda: views.fact_group(run, name, group, start, k))
    return JsonResponse(found)


@api.get("/v1/neighbours", response_model=schemas.Neighbours)
async def neighbours(service: Shared, run: Chosen, name: Name, k: Count = 10) -> JsonResponse:
    found = await service.workers.run(lambda: run.neighbours(name, k))
    return JsonResponse(schemas.Neighbours(name, found))


@api.get("/v1/map", response_model=schemas.Map)
async def projection(
    service: Shared, run: Chosen, relation: OptionalName = None, method: Method = "pca"
) -> JsonResponse:
    return JsonResponse(await service.workers.run_long(lambda: run.map(relation, method)))


@api.get("/v1/metrics", response_model=schemas.Quality)
async def metrics(service: Shared, run: Chosen) -> JsonResponse:
    return JsonResponse(await service.workers.run_long(lambda: views.quality(run)))


@api.get("/v1/curves", response_model=dict[str, list[schemas.RunCurves]])
async def curves(service: Shared) -> JsonResponse:
    """The curves of all runs."""
    found = [schemas.RunCurves(name, views.curves(run.run)) for name, run in service.runs.items()]
    return JsonResponse({"runs": found})


def _add_page(app: FastAPI) -> None:
    # The files are read once: no request opens a file.
    folder = resources.files("allneg.serve") / "static"
    files = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}

    async def page(request: Request) -> Response:
        name = request.path_params.get("name", "index.html")
        if name not in files:
            raise HTTPException(404)
        return Response(files[name], media_type=_MEDIA_TYPES[name.rpartition(".")[2]])

    app.add_route("/", page)
    app.add_route("/static/{name}", page)
