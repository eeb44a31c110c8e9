"""What the service says: the JSON of every address, a class each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Fact = list[str]  # head, relation, tail


def to_json(value: object) -> bytes:
    """A shape as JSON; a number that is not finite is an error, since JSON has none."""
    return json.dumps(
        value, default=vars, ensure_ascii=False, allow_nan=False, separators=(",", ":")
    ).encode("utf-8", "replace")


@dataclass(frozen=True)
class Health:
    status: str


@dataclass(frozen=True)
class Error:
    code: str
    message: str
    near: list[str]  # names like the unknown one


@dataclass(frozen=True)
class Failure:
    error: Error


@dataclass(frozen=True)
class Example:
    """A query to begin with: the head or the tail is null."""

    head: str | None
    relation: str
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
    mrr: float | None  # of the run's report; null until it is finished, or with nothing to rank
    hits: dict[str, float] | None
    protocol: dict[str, Any] | None
    recipe: dict[str, Any]
    finished: bool
    epochs: int
    seconds: float


@dataclass(frozen=True)
class Models:
    models: list[ModelCard]
    examples: dict[str, list[Example]]  # of each model


@dataclass(frozen=True)
class EntityName:
    name: str
    label: str | None
    degree: int  # facts it is in


@dataclass(frozen=True)
class Entities:
    entities: list[EntityName]
    match: str  # how the first was found: all, exact, prefix, infix, fuzzy or none


@dataclass(frozen=True)
class RelationName:
    name: str
    count: int  # facts of train
    category: str
    typical: bool  # the head has it in train


@dataclass(frozen=True)
class Relations:
    relations: list[RelationName]


@dataclass(frozen=True)
class Asked:
    """A query: what is asked for is null."""

    head: str | None
    relation: str | None
    tail: str | None


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
    label: str | None
    score: float
    probability: float
    calibrated: float | None
    known: str | None


@dataclass(frozen=True)
class Predicted:
    query: Asked
    answers: list[EntityAnswer | RelationAnswer]
    seconds: float
    calibration: str | None  # how `calibrated` was made


@dataclass(frozen=True)
class Supporter:
    entity: str
    similarity: float
    fact: Fact


@dataclass(frozen=True)
class Path:
    relations: list[str]  # ^ in front of one that is walked from tail to head
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
class Other:
    name: str
    label: str | None
    split: str


@dataclass(frozen=True)
class FactGroup:
    relation: str
    direction: str  # out: the entity is the head; in: the tail
    total: int
    entities: list[Other]


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
    points: list[list[float]]  # x, y of each, between -1 and 1
    names: list[str]
    colours: list[int]  # a position in the legend
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
class Heat:
    relation: str
    category: str
    head: dict[str, Any]
    tail: dict[str, Any]


@dataclass(frozen=True)
class Worst:
    head: str
    relation: str
    tail: str
    side: str  # what was asked for
    rank: float


@dataclass(frozen=True)
class Quality:
    report: dict[str, Any] | None  # as `allneg evaluate --json` gives it; null: nothing to rank
    curves: list[Curve]
    heat: list[Heat]
    worst: list[Worst]
    worst_of: int  # triples that were looked at for the worst
