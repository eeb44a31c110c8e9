"""The page of one entity: its facts, similar entities, and a small graph with predicted facts."""

from __future__ import annotations

from itertools import islice, zip_longest

import numpy as np

from allneg.graph.graph import SPLITS
from allneg.graph.queries import Side
from allneg.serve import schemas
from allneg.serve.loaded_run import LoadedRun

_MAX_OTHERS = 20  # shown per relation
_MAX_NEIGHBOURS = 10
_MAX_NODES, _MAX_KNOWN, _MAX_EDGES = 24, 15, 60
_MAX_QUERIES = 8  # for predicted facts
_MIN_PROBABILITY = 0.5  # of a predicted fact

Group = tuple[str, str]  # relation, direction: "out" if the entity is the head, else "in"
Others = list[tuple[str, str]]  # name, split
Triple = tuple[str, str, str]


def entity_page(run: LoadedRun, name: str) -> schemas.EntityPage:
    entity = run.entity_id(name)
    groups = _groups(run, entity)
    facts = [
        schemas.FactGroup(
            *group,
            len(others),
            [schemas.OtherEntity(o, run.labels.get(o), split) for o, split in others[:_MAX_OTHERS]],
        )
        for group, others in groups.items()
    ]
    degree = int(run.facts.degree[entity])
    neighbours, graph = run.nearest(entity, _MAX_NEIGHBOURS), _drawing(run, name, groups)
    return schemas.EntityPage(name, run.labels.get(name), degree, facts, neighbours, graph)


def _groups(run: LoadedRun, entity: int) -> dict[Group, Others]:
    """Other entities by relation and direction; large groups and entities of many facts first."""
    facts, names = run.facts.of_entity(entity), run.predictor.graph.vocabulary
    groups: dict[tuple[int, bool], Others] = {}
    order = np.argsort(-run.facts.degree[facts.other], kind="stable")
    for relation, other, split, reverse in facts.rows(order):
        groups.setdefault((relation, reverse), []).append((names.entities[other], SPLITS[split]))
    ranked = sorted(groups.items(), key=lambda item: (-len(item[1]), item[0]))
    return {
        (names.relations[relation], "in" if reverse else "out"): others
        for (relation, reverse), others in ranked
    }


def _triple(name: str, relation: str, other: str, outward: bool) -> Triple:
    return (name, relation, other) if outward else (other, relation, name)


def _drawing(run: LoadedRun, name: str, groups: dict[Group, Others]) -> schemas.Drawing:
    nodes: dict[str, None] = {name: None}
    edges: dict[Triple, bool] = {}  # whether it is predicted
    # The first fact of every group, then the second of every group, and so on.
    for group_row in islice(zip_longest(*groups.values()), _MAX_EDGES):
        for (relation, direction), item in zip(groups, group_row, strict=True):
            if item is None or len(edges) == _MAX_EDGES:
                continue
            if item[0] in nodes or len(nodes) <= _MAX_KNOWN:
                nodes[item[0]] = None
                edges[_triple(name, relation, item[0], direction == "out")] = False
    for triple in _predicted_facts(run, name, groups):
        other = triple[2] if triple[0] == name else triple[0]
        if other in nodes or len(nodes) < _MAX_NODES:
            nodes[other] = None
            edges[triple] = True
    return schemas.Drawing(
        [schemas.Entity(node, run.labels.get(node)) for node in nodes],
        [schemas.Edge(*triple, predicted) for triple, predicted in edges.items()],
    )


def _predicted_facts(run: LoadedRun, name: str, groups: dict[Group, Others]) -> list[Triple]:
    """Likely new facts with relations that the entity already has, most likely first."""
    queries: list[tuple[Side, str, str]] = [
        ("tail" if direction == "out" else "head", name, relation)
        for relation, direction in islice(groups, _MAX_QUERIES)
    ]
    found = []
    answers = run.predictor.ask(queries, k=3, new=True)
    for (side, _, relation), answer in zip(queries, answers, strict=True):
        for prediction, calibrated in zip(answer.predictions, run.calibrated(answer), strict=True):
            probability = prediction.probability if calibrated is None else calibrated
            if probability >= _MIN_PROBABILITY and prediction.entity != name:
                triple = _triple(name, relation, prediction.entity, side == "tail")
                found.append((probability, triple))
    found.sort(key=lambda item: -item[0])
    return [triple for _, triple in found]
