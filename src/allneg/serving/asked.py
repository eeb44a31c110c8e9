"""What the service is asked: the parameters of every address, a class each.

They are read in one go. The web library's own way, a parameter at a time, takes as long as the
rest of a request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import Field, TypeAdapter, ValidationError

from allneg.errors import printable
from allneg.serving.refusal import Refusal

T = TypeVar("T")

_LONGEST_TEXT = 512
_MOST_ANSWERS = 1000

_Typed = Annotated[str, Field(max_length=_LONGEST_TEXT)]
_Name = Annotated[str, Field(min_length=1, max_length=_LONGEST_TEXT)]
_Most = Annotated[int, Field(ge=1, le=_MOST_ANSWERS)]
_Model = Annotated[_Typed | None, Field(description="the first, if none")]


@dataclass(frozen=True)
class Nothing:
    """No parameters."""


@dataclass(frozen=True)
class ForModel:
    model: _Model = None


@dataclass(frozen=True)
class ForEntities:
    model: _Model = None
    q: _Typed = ""
    limit: Annotated[int, Field(ge=1, le=100)] = 20


@dataclass(frozen=True)
class ForRelations:
    model: _Model = None
    q: _Typed = ""
    head: _Name | None = None


@dataclass(frozen=True)
class ForAnswers:
    model: _Model = None
    head: _Name | None = None
    relation: _Name | None = None
    tail: _Name | None = None
    k: _Most = 10
    hide_known: bool = False


@dataclass(frozen=True)
class ForReasons:
    head: _Name
    relation: _Name
    tail: _Name
    model: _Model = None
    side: Literal["tail", "head"] = "tail"


@dataclass(frozen=True)
class ForEntity:
    name: _Name
    model: _Model = None


@dataclass(frozen=True)
class ForNeighbours:
    name: _Name
    model: _Model = None
    k: _Most = 10


@dataclass(frozen=True)
class ForMap:
    model: _Model = None
    relation: _Name | None = None
    method: Literal["pca", "tsne"] = "pca"


def read_query(shape: type[T], query: bytes) -> T:
    """The parameters of a query string; one that `shape` lacks, or that comes twice, is refused."""
    adapter, names = _reader(shape)  # type: ignore[arg-type]
    given: dict[str, str] = {}
    for name, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        if name not in names:
            raise Refusal("bad_parameter", f"{printable(name)} is no parameter of this address")
        if name in given:
            raise Refusal("bad_parameter", f"{name} stands there more than once")
        given[name] = value
    try:
        found: T = adapter.validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise Refusal("bad_parameter", f"{first['loc'][-1]}: {first['msg']}") from None
    return found


def described(shape: type) -> list[Mapping[str, Any]]:
    """The parameters as the OpenAPI document has them."""
    said = _reader(shape)[0].json_schema()
    required = said.get("required", [])
    return [
        {"name": name, "in": "query", "required": name in required, "schema": each}
        for name, each in said["properties"].items()
    ]


@cache
def _reader(shape: type) -> tuple[TypeAdapter[Any], frozenset[str]]:
    adapter: TypeAdapter[Any] = TypeAdapter(shape)
    return adapter, frozenset(adapter.json_schema()["properties"])
