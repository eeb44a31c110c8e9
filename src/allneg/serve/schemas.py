"""The JSON of every response, one class per object."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from starlette.responses import Response

Fact = list[str]  # head, relation, tail


class JsonResponse(Response):
    """Dataclasses as JSON. NaN and infinity are errors, since JSON does not have them."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(
            content, default=vars, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode("utf-8", "replace")


@dataclass(frozen=True)
class Health:
    status: str


@dataclass(frozen=True)
class Error:
    code: str
    message: str
    near: list[str]  # names similar to the unknown one


@dataclass(frozen=True)
class Failure:
    error: Error


@dataclass(frozen=True)
class Query:
    """A query; the part to be answered is null."""

    head: str | None
    relation: str | None
    tail: str | None


@dataclass(frozen=True)
class ModelCard:
    id: str
    data: str
    model: str
    dim: int
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    mrr: float | None  # null before the run is finished, or with nothing to rank
    hits: dict[str, float] | None
    protocol: dict[str, Any] | None
    recipe: dict[str, Any]
    finished: bool
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Models:
    models: list[ModelCard]
    examples: dict[str, list[Query]]  # by model id


@dataclass(frozen=True)
class EntityName:
    name: str
    label: str | None
    degree: int  # the number of its facts


@dataclass(frozen=True)
class Entities:
    entities: list[EntityName]
    match: str  # how the first was found: all, exact, prefix, infix, fuzzy or none


@dataclass(frozen=True)
class RelationName:
    name: str
    count: int  # facts in train
    category: str
    typical: bool  # the head has it in train


@dataclass(frozen=True)
class Relations:
    relations: list[RelationName]


@dataclass(frozen=True)
class EntityAnswer:
    rank: int
    entity: str
    label: str | None
    score: float
    probability: float
    calibrated: float | None
    known: str | None


@dataclass(frozen=True)
class RelationAnswer:
    rank: int
    relation: str
    label: None
    score: float
    probability: float
    calibrated: None
    known: str | None


@dataclass(frozen=True)
class Predicted:
    question: Query
    answers: list[EntityAnswer] | list[RelationAnswer]
    seconds: float
    calibration: str | None  # how `calibrated` was computed


@dataclass(frozen=True)
class Supporter:
    entity: str
    similarity: float
    fact: Fact


@dataclass(frozen=True)
class Path:
    relations: list[str]  # with ^ before a relation that is followed from tail to head
    count: int
    example: list[Fact]


@dataclass(frozen=True)
class Explanation:
    neighbours: list[Supporter]
    facts: list[list[str]]  # head, relation, tail, split
    paths: list[Path]


@dataclass(frozen=True)
class Neighbour:
    name: str
    label: str | None
    similarity: float


@dataclass(frozen=True)
class Neighbours:
    name: str
    neighbours: list[Neighbour]


@dataclass(frozen=True)
class OtherEntity:
    name: str
    label: str | None
    split: str


@dataclass(frozen=True)
class FactGroup:
    relation: str
    direction: str  # out: the entity is the head; in: it is the tail
    total: int
    entities: list[OtherEntity]


@dataclass(frozen=True)
class Node:
    name: str
    label: str | None


@dataclass(frozen=True)
class Edge:
    head: str
    relation: str
    tail: str
    predicted: bool


@dataclass(frozen=True)
class Drawing:
    nodes: list[Node]
    edges: list[Edge]


@dataclass(frozen=True)
class EntityPage:
    name: str
    label: str | None
    degree: int
    facts: list[FactGroup]
    neighbours: list[Neighbour]
    graph: Drawing


@dataclass(frozen=True)
class Map:
    method: str
    points: list[list[float]]  # x and y of each entity, between -1 and 1
    names: list[str]
    colours: list[int]  # indices into the legend
    legend: list[str]
    note: str


@dataclass(frozen=True)
class Curve:
    epoch: int
    loss: float | None
    valid_mrr: float | None


@dataclass(frozen=True)
class RunCurves:
    model: str  # its id
    curves: list[Curve]


@dataclass(frozen=True)
class AllCurves:
    runs: list[RunCurves]


@dataclass(frozen=True)
class RelationMetrics:
    relation: str
    category: str
    head: dict[str, Any]
    tail: dict[str, Any]


@dataclass(frozen=True)
class RankedQuery:
    head: str
    relation: str
    tail: str
    side: str  # the side of the answer
    rank: float


@dataclass(frozen=True)
class Quality:
    report: dict[str, Any] | None  # as in `allneg evaluate --json`; null with nothing to rank
    curves: list[Curve]
    heat: list[RelationMetrics]
    worst: list[RankedQuery]
    worst_of: int  # the number of triples among which the worst were found
