"""The service: its addresses."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

from allneg import __version__
from allneg.graph.queries import Side
from allneg.serving import asked, shapes
from allneg.serving.assets import read_assets
from allneg.serving.entity import entity_page
from allneg.serving.guard import App, Guard, Receive, Send, answer_of, refusal_of
from allneg.serving.opened import Opened
from allneg.serving.quality import curves
from allneg.serving.refusal import Refusal
from allneg.serving.workers import Together, Workers

A = TypeVar("A")
Endpoint = Callable[[bytes], Awaitable[object]]  # a query string to what is said


def make_app(models: Mapping[str, Opened], workers: Workers, hosts: Iterable[str]) -> App:
    """The service over some opened runs, behind its guard."""
    app = FastAPI(
        title="allneg explorer",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for kind in (Refusal, HTTPException, Exception):
        app.add_exception_handler(kind, _refuse)
    addresses = Addresses(app)
    _add_about(addresses, models)
    _add_names(addresses, models, workers)
    _add_predict(addresses, models, workers)
    _add_entities(addresses, models, workers)
    _add_page(app)
    return Guard(addresses, hosts)


class Addresses:
    """The addresses that say JSON. The web library describes them, and answers everything else.

    It would answer these as well, in twice the time.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app
        self._endpoints: dict[str, Endpoint] = {}

    async def __call__(self, scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        endpoint = self._endpoints.get(scope.get("path", "")) if _is_get(scope) else None
        if endpoint is None:
            await self.app(scope, receive, send)
            return
        body = shapes.to_json(await endpoint(scope["query_string"]))
        length = str(len(body)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def add(
        self, path: str, parameters: type[A], says: type
    ) -> Callable[[Callable[[A], Awaitable[object]]], None]:
        """An address whose function takes `parameters` and gives what is said."""

        def added(answer: Callable[[A], Awaitable[object]]) -> None:
            async def endpoint(query: bytes) -> object:
                return await answer(asked.read_query(parameters, query))

            async def described() -> None:
                raise AssertionError(f"{path} is answered before it comes here")

            self._endpoints[path] = endpoint
            self.app.get(
                path,
                name=path.rpartition("/")[2],
                description=answer.__doc__ or "",
                responses=_says(says),
                openapi_extra={"parameters": asked.described(parameters)},
            )(described)

        return added


def _is_get(scope: MutableMapping[str, Any]) -> bool:
    return bool(scope["type"] == "http" and scope["method"] == "GET")


def _add_about(addresses: Addresses, models: Mapping[str, Opened]) -> None:
    # Always the same: made before the first request.
    said = shapes.Models(
        [each.card for each in models.values()],
        {name: each.examples for name, each in models.items()},
    )

    @addresses.add("/healthz", asked.Nothing, shapes.Health)
    async def healthz(_: asked.Nothing) -> shapes.Health:
        return shapes.Health("ok")

    @addresses.add("/v1/models", asked.Nothing, shapes.Models)
    async def all_models(_: asked.Nothing) -> shapes.Models:
        return said


def _add_names(addresses: Addresses, models: Mapping[str, Opened], workers: Workers) -> None:
    @addresses.add("/v1/entities", asked.ForEntities, shapes.Entities)
    async def entities(by: asked.ForEntities) -> shapes.Entities:
        opened = _model(models, by.model)
        return await workers.do(lambda: opened.entities(by.q, by.limit))

    @addresses.add("/v1/relations", asked.ForRelations, shapes.Relations)
    async def relations(by: asked.ForRelations) -> shapes.Relations:
        opened = _model(models, by.model)
        return await workers.do(lambda: opened.relations(by.q, by.head))


def _add_predict(addresses: Addresses, models: Mapping[str, Opened], workers: Workers) -> None:
    together = Together(workers)

    @addresses.add("/v1/predict", asked.ForAnswers, shapes.Predicted)
    async def predict(by: asked.ForAnswers) -> shapes.Predicted:
        """Two of head, relation and tail: what is left out is asked for."""
        opened, relation = _model(models, by.model), by.relation
        if (by.head, relation, by.tail).count(None) != 1:
            raise Refusal("bad_parameter", "say two of head, relation and tail, and not the third")
        if relation is None:
            ends = (str(by.head), str(by.tail))
            return await workers.do(lambda: opened.joining(*ends, by.k, by.hide_known))
        side: Side = "tail" if by.tail is None else "head"
        known = str(by.head if by.tail is None else by.tail)
        if not opened.knows(known, relation):
            # Looking for names like it takes a while: not here, where everybody waits.
            await workers.do(lambda: (opened.entity(known), opened.relation(relation)))
        began = time.perf_counter()
        found = await together.ask(opened, (side, known, relation), by.k, by.hide_known)
        return opened.answers(side, known, relation, found, time.perf_counter() - began)

    @addresses.add("/v1/explain", asked.ForReasons, shapes.Explanation)
    async def explain(by: asked.ForReasons) -> shapes.Explanation:
        opened = _model(models, by.model)
        return await workers.do(lambda: opened.explain(by.head, by.relation, by.tail, by.side))


def _add_entities(addresses: Addresses, models: Mapping[str, Opened], workers: Workers) -> None:
    @addresses.add("/v1/entity", asked.ForEntity, shapes.EntityPage)
    async def entity(by: asked.ForEntity) -> shapes.EntityPage:
        opened = _model(models, by.model)
        return await workers.do(lambda: entity_page(opened, by.name))

    @addresses.add("/v1/neighbours", asked.ForNeighbours, shapes.Neighbours)
    async def neighbours(by: asked.ForNeighbours) -> shapes.Neighbours:
        opened = _model(models, by.model)
        return await workers.do(lambda: opened.neighbours(by.name, by.k))

    @addresses.add("/v1/map", asked.ForMap, shapes.Map)
    async def projection(by: asked.ForMap) -> shapes.Map:
        opened = _model(models, by.model)
        return await workers.do_long(lambda: opened.map(by.relation, by.method))

    @addresses.add("/v1/metrics", asked.ForModel, shapes.Quality)
    async def metrics(by: asked.ForModel) -> shapes.Quality:
        opened = _model(models, by.model)
        return await workers.do_long(lambda: opened.quality)

    @addresses.add("/v1/curves", asked.Nothing, shapes.AllCurves)
    async def all_curves(_: asked.Nothing) -> shapes.AllCurves:
        """Of every run, to be laid over each other."""
        return await workers.do(lambda: _curves(models))


def _curves(models: Mapping[str, Opened]) -> shapes.AllCurves:
    return shapes.AllCurves(
        [shapes.RunCurves(name, list(curves(each.run))) for name, each in models.items()]
    )


def _add_page(app: FastAPI) -> None:
    assets = read_assets()

    async def asset(request: Request) -> Response:
        asked.read_query(asked.Nothing, request.scope["query_string"])
        name = request.path_params.get("name", "index.html")
        if name not in assets:
            raise Refusal("not_found", "there is no such page")
        return Response(assets[name].content, media_type=assets[name].kind)

    app.add_route("/", asset)
    app.add_route("/static/{name:path}", asset)


def _model(models: Mapping[str, Opened], name: str | None) -> Opened:
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise Refusal("unknown_model", "no model has this id", list(models))
    return models[name]


def _says(shape: type) -> dict[int | str, dict[str, Any]]:
    """What an address may answer, for the OpenAPI document."""
    errors = {
        400: "not a request for this host",
        404: "an unknown name",
        413: "too large",
        422: "a bad parameter",
        500: "the model or the service is broken",
        503: "busy",
    }
    failures: dict[int | str, dict[str, Any]] = {
        status: {"model": shapes.Failure, "description": text} for status, text in errors.items()
    }
    return {200: {"model": shape}, **failures}


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        method = error.status_code == 405
        text = "only GET is answered here" if method else "there is no such page"
        refusal = Refusal("bad_method" if method else "not_found", text)
    else:
        refusal = refusal_of(error)
    status, headers, body = answer_of(refusal)
    said = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, said)
