"""The JSON of every response, one class per object."""

import json
from dataclasses import dataclass
from typing import Any, Literal, dataclass_transform

from starlette.responses import Response

from allneg.predict import ask
from allneg.predict.new_facts import NewFact

Fact = list[str]  # head, relation, tail
Direction = Literal["out", "in"]  # out: the entity is the head; in: it is the tail


class JsonResponse(Response):
    """Dataclasses as JSON. NaN and infinity are errors, since JSON does not have them."""

    media_type = "application/json"

    def render(self, content: object) -> bytes:
        return json.dumps(
            content, default=vars, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        ).encode("utf-8", "replace")


@dataclass_transform(frozen_default=True)
class Schema:
    """Every subclass is a frozen dataclass."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


class Error(Schema):
    code: str
    message: str
    near: list[str]  # names similar to the unknown one


class Query(Schema):
    """A query; the part to be answered is null."""

    head: str | None
    relation: str | None
    tail: str | None


class ModelCard(Schema):
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


class Models(Schema):
    models: list[ModelCard]
    examples: dict[str, list[Query]]  # by model id


class Entity(Schema):
    name: str
    label: str | None


class FoundEntity(Entity):
    degree: int  # the number of its facts
    new: bool  # added by the last `extend`


class Entities(Schema):
    entities: list[FoundEntity]
    match: str  # how the first was found: all, exact, prefix, infix, fuzzy or none


class RelationName(Schema):
    name: str
    count: int  # facts in train
    category: str
    typical: bool  # the head has it in train


class Answer(Schema):
    rank: int
    label: str | None
    score: float
    share: float  # the softmax of the scores
    calibrated: float | None
    known: str | None


class EntityAnswer(Answer):
    entity: str


class RelationAnswer(Answer):
    relation: str


class Predicted(Schema):
    question: Query
    answers: list[EntityAnswer] | list[RelationAnswer]
    seconds: float
    calibration: str | None  # how `calibrated` was computed


class Supporter(Schema):
    entity: str
    similarity: float
    fact: Fact


class Path(Schema):
    relations: list[str]  # with ^ before a relation that is followed from tail to head
    count: int
    example: list[Fact]


class Explanation(Schema):
    neighbours: list[Supporter]
    facts: list[list[str]]  # the others between the two: head, relation, tail, split
    paths: list[Path]


class Neighbour(Entity):
    similarity: float


class Neighbours(Schema):
    name: str
    neighbours: list[Neighbour]


class OtherEntity(Entity):
    split: str


class FactGroup(Schema):
    relation: str
    direction: Direction
    total: int
    entities: list[OtherEntity]


class Edge(Schema):
    head: str
    relation: str
    tail: str
    predicted: bool


class Drawing(Schema):
    nodes: list[Entity]
    edges: list[Edge]


class EntityPage(FoundEntity):
    facts: list[FactGroup]
    neighbours: list[Neighbour]
    graph: Drawing


class Map(Schema):
    method: str
    points: list[list[float]]  # x and y of each entity, between -1 and 1
    names: list[str]
    colours: list[int]  # indices into the legend
    legend: list[str]
    note: str


class Curve(Schema):
    epoch: int
    loss: float | None
    valid_mrr: float | None


class RunCurves(Schema):
    model: str  # its id
    curves: list[Curve]


class RelationMetrics(Schema):
    relation: str
    category: str
    head: dict[str, Any]
    tail: dict[str, Any]


class RankedQuery(Schema):
    head: str
    relation: str
    tail: str
    side: str  # the side of the answer
    rank: float


class Quality(Schema):
    report: dict[str, Any] | None  # as in `allneg evaluate --json`; null with nothing to rank
    curves: list[Curve]
    heat: list[RelationMetrics]
    worst: list[RankedQuery]
    worst_of: int  # the number of triples among which the worst were found


class Missing(Schema):
    facts: list[NewFact]
    labels: dict[str, str]  # of entities that have one
    start: int  # the first head that was asked
    stop: int  # the head after the last one that was asked
    heads: int  # that may be asked
    exact: bool  # else time ran out, and other facts may be as probable
    seconds: float


class SuspiciousFact(Schema):
    head: str
    relation: str
    tail: str
    probability: float
    head_rank: float
    tail_rank: float
    expected: str
    reason: str


class Suspicious(Schema):
    facts: list[SuspiciousFact]
    labels: dict[str, str]
    total: int  # that match, however many are shown
    relations: dict[str, int]  # the number of facts of each relation


class Asked(Schema):
    answers: list[ask.Answer]
    labels: dict[str, str]
    seconds: float
