"""The service: addresses, and the server that listens for them."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal

import uvicorn
from fastapi import Depends, FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from starlette.exceptions import HTTPException
from uvicorn.protocols.http.h11_impl import H11Protocol

from allneg import __version__
from allneg.errors import printable
from allneg.graph.questions import Side
from allneg.serving import shapes
from allneg.serving.assets import read_assets
from allneg.serving.entity import entity_page
from allneg.serving.guard import App, Guard, answer_of, refusal_of, with_ours
from allneg.serving.opened import Opened
from allneg.serving.refusal import Refusal
from allneg.serving.workers import Together, Workers

_LONGEST_TEXT = 512
_MOST_ANSWERS = 1000
_MOST_CONNECTIONS = 256
_MOST_HEADER = 16 << 10  # bytes of a request's line and headers
_PATIENCE = 10.0  # seconds for a request's headers, or for taking an answer

_NAME = Query(min_length=1, max_length=_LONGEST_TEXT)
_Model = Annotated[str | None, Query(max_length=_LONGEST_TEXT, description="the first, if none")]
_Name = Annotated[str, _NAME]
_MaybeName = Annotated[str | None, _NAME]
_Typed = Annotated[str, Query(max_length=_LONGEST_TEXT)]
_Most = Annotated[int, Query(ge=1, le=_MOST_ANSWERS)]


def make_app(models: Mapping[str, Opened], workers: Workers, hosts: Iterable[str]) -> App:
    """The service over some opened runs, behind its guard."""
    app = FastAPI(
        title="allneg explorer",
        version=__version__,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(_strict)],
    )
    for kind in (Refusal, HTTPException, RequestValidationError, Exception):
        app.add_exception_handler(kind, _refuse)
    _add_about(app, models)
    _add_names(app, models, workers)
    _add_predict(app, models, workers)
    _add_entities(app, models, workers)
    _add_page(app)
    return Guard(app, hosts)


def _add_about(app: FastAPI, models: Mapping[str, Opened]) -> None:
    # Said at once and always the same: made before the first request.
    said = shapes.to_json(
        shapes.Models(
            [each.card for each in models.values()],
            {name: each.examples for name, each in models.items()},
        )
    )

    @app.get("/healthz", responses=_says(shapes.Health))
    async def healthz() -> Response:
        return _json(shapes.Health("ok"))

    @app.get("/v1/models", responses=_says(shapes.Models))
    async def all_models() -> Response:
        return Response(said, media_type="application/json")


def _add_names(app: FastAPI, models: Mapping[str, Opened], workers: Workers) -> None:
    @app.get("/v1/entities", responses=_says(shapes.Entities))
    async def entities(
        model: _Model = None,
        q: _Typed = "",
        limit: Annotated[int, Query(ge=1, le=100)] = 20,
    ) -> Response:
        opened = _model(models, model)
        return _json(await workers.do(lambda: opened.entities(q, limit)))

    @app.get("/v1/relations", responses=_says(shapes.Relations))
    async def relations(model: _Model = None, q: _Typed = "", head: _MaybeName = None) -> Response:
        opened = _model(models, model)
        return _json(await workers.do(lambda: opened.relations(q, head)))


def _add_predict(app: FastAPI, models: Mapping[str, Opened], workers: Workers) -> None:
    together = Together(workers)

    @app.get("/v1/predict", responses=_says(shapes.Predicted))
    async def predict(
        model: _Model = None,
        head: _MaybeName = None,
        relation: _MaybeName = None,
        tail: _MaybeName = None,
        k: _Most = 10,
        hide_known: bool = False,
    ) -> Response:
        """Two of head, relation and tail: what is left out is asked for."""
        opened = _model(models, model)
        if (head, relation, tail).count(None) != 1:
            raise Refusal("bad_parameter", "say two of head, relation and tail, and not the third")
        if relation is None:
            ends = (str(head), str(tail))
            return _json(await workers.do(lambda: opened.joining(*ends, k, hide_known)))
        side: Side = "tail" if tail is None else "head"
        known = str(head if tail is None else tail)
        if not opened.knows(known, relation):
            # Looking for names like it takes a while: not here, where everybody waits.
            await workers.do(lambda: (opened.entity(known), opened.relation(relation)))
        began = time.perf_counter()
        found = await together.ask(opened, (side, known, relation), k, hide_known)
        seconds = time.perf_counter() - began
        return _json(opened.answers(side, known, relation, found, seconds))

    @app.get("/v1/explain", responses=_says(shapes.Explanation))
    async def explain(
        head: _Name,
        relation: _Name,
        tail: _Name,
        model: _Model = None,
        side: Literal["tail", "head"] = "tail",
    ) -> Response:
        opened = _model(models, model)
        return _json(await workers.do(lambda: opened.explain(head, relation, tail, side)))


def _add_entities(app: FastAPI, models: Mapping[str, Opened], workers: Workers) -> None:
    @app.get("/v1/entity", responses=_says(shapes.EntityPage))
    async def entity(name: _Name, model: _Model = None) -> Response:
        opened = _model(models, model)
        return _json(await workers.do(lambda: entity_page(opened, name)))

    @app.get("/v1/neighbours", responses=_says(shapes.Neighbours))
    async def neighbours(name: _Name, model: _Model = None, k: _Most = 10) -> Response:
        opened = _model(models, model)
        return _json(await workers.do(lambda: opened.neighbours(name, k)))

    @app.get("/v1/map", responses=_says(shapes.Map))
    async def projection(
        model: _Model = None,
        relation: _MaybeName = None,
        method: Literal["pca", "tsne"] = "pca",
    ) -> Response:
        opened = _model(models, model)
        return _json(await workers.do_long(lambda: opened.map(relation, method)))

    @app.get("/v1/metrics", responses=_says(shapes.Quality))
    async def metrics(model: _Model = None) -> Response:
        opened = _model(models, model)
        return _json(await workers.do_long(lambda: opened.quality))


def _add_page(app: FastAPI) -> None:
    assets = read_assets()

    def asset(name: str) -> Response:
        if name not in assets:
            raise Refusal("not_found", "there is no such page")
        return Response(assets[name].content, media_type=assets[name].kind)

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return asset("index.html")

    @app.get("/static/{name:path}", include_in_schema=False)
    async def file(name: str) -> Response:
        return asset(name)


def _model(models: Mapping[str, Opened], name: str | None) -> Opened:
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise Refusal("unknown_model", "no model has this id", list(models))
    return models[name]


def _json(said: object) -> Response:
    return Response(shapes.to_json(said), media_type="application/json")


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


def _strict(request: Request) -> None:
    """A parameter that an address does not have, or that stands there twice, is a mistake."""
    route = request.scope.get("route")
    known = {each.alias for each in route.dependant.query_params} if route else set()
    for name in request.query_params:
        if name not in known:
            raise Refusal("bad_parameter", f"{printable(name)} is no parameter of this address")
        if len(request.query_params.getlist(name)) > 1:
            raise Refusal("bad_parameter", f"{name} stands there more than once")


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, RequestValidationError):
        first = error.errors()[0]
        refusal = Refusal("bad_parameter", f"{first['loc'][-1]}: {first['msg']}")
    elif isinstance(error, HTTPException):
        method = error.status_code == 405
        text = "only GET is answered here" if method else "there is no such page"
        refusal = Refusal("bad_method" if method else "not_found", text)
    else:
        refusal = refusal_of(error)
    status, headers, body = answer_of(refusal)
    said = {name.decode(): value.decode() for name, value in headers}
    return Response(body, status, said)


def serve(
    models: Mapping[str, Opened], workers: Workers, hosts: Iterable[str], listener: socket.socket
) -> None:
    """Answer until a signal ends it; that signal's own handler then has the last word."""
    settings = uvicorn.Config(
        make_app(models, workers, hosts),
        http=_Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=int(_PATIENCE),
        timeout_graceful_shutdown=4,
        h11_max_incomplete_event_size=_MOST_HEADER,
    )
    asyncio.run(uvicorn.Server(settings).serve([listener]))


class _Connection(H11Protocol):
    """A connection that is closed when nothing comes of it, so that others find room."""

    _since = 0.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._since = self.loop.time()
        self._wind()
        if len(self.connections) > _MOST_CONNECTIONS:
            others = [each for each in self.connections if isinstance(each, _Connection)]
            idle = [each for each in others if each._idle]
            min(idle, key=lambda each: each._since).transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._since = self.loop.time()
        self._wind()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        refusal = Refusal("bad_request", "this is not a request that can be read")
        if len(self.conn.trailing_data[0]) > _MOST_HEADER:
            refusal = Refusal("too_large", f"a request of more than {_MOST_HEADER} bytes")
        status, headers, body = answer_of(refusal)
        lines = [f"HTTP/1.1 {status} Refused".encode(), b"connection: close"]
        lines += [name + b": " + value for name, value in with_ours(headers)]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        self.transport.close()

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _wind(self) -> None:
        """Look again after a while: the next request should be there, or the answer taken."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(_PATIENCE, self._look)

    def _look(self) -> None:
        if self.transport.get_write_buffer_size():
            self.transport.abort()  # nobody reads the answer
        elif self._idle:
            self.transport.close()
        else:
            self._wind()  # an answer is being worked out
