"""The page of one entity: its facts, its neighbours, and a small drawing with new facts in it."""

from __future__ import annotations

import numpy as np

from allneg.graph.graph import SPLITS
from allneg.graph.queries import Side
from allneg.serving import shapes
from allneg.serving.facts import Around
from allneg.serving.opened import Opened

_MOST_OTHERS = 20  # of a relation's facts
_MOST_NEIGHBOURS = 10
_MOST_NODES, _MOST_KNOWN, _MOST_EDGES = 24, 15, 60
_ASKED = 8  # relations that are asked for new facts
_LIKELY = 0.5  # the least probability of a new fact that is drawn


def entity_page(opened: Opened, name: str) -> shapes.EntityPage:
    entity = opened.entity(name)
    around = opened.facts.around(entity)
    groups = _groups(around, opened.facts.degree)
    return shapes.EntityPage(
        name,
        opened.labels.get(name),
        len(around.other),
        [_fact_group(opened, around, *key, places) for key, places in groups.items()],
        opened.nearest(entity, _MOST_NEIGHBOURS),
        _drawing(opened, entity, around, groups),
    )


_Key = tuple[int, bool]  # relation, reversed


def _groups(
    around: Around, degree: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> dict[_Key, list[int]]:
    """Places in `around` by relation and direction, large groups and well-known others first."""
    found: dict[_Key, list[int]] = {}
    for place in np.argsort(-degree[around.other], kind="stable").tolist():
        key = (int(around.relation[place]), bool(around.reverse[place]))
        found.setdefault(key, []).append(place)
    return dict(sorted(found.items(), key=lambda each: (-len(each[1]), each[0])))


def _fact_group(
    opened: Opened, around: Around, relation: int, reverse: bool, places: list[int]
) -> shapes.FactGroup:
    others = []
    for place in places[:_MOST_OTHERS]:
        other = opened.name(int(around.other[place]))
        others.append(
            shapes.Other(other, opened.labels.get(other), SPLITS[int(around.split[place])])
        )
    name = opened.predictor.graph.vocabulary.relations[relation]
    return shapes.FactGroup(name, "in" if reverse else "out", len(places), others)


def _drawing(
    opened: Opened, entity: int, around: Around, groups: dict[_Key, list[int]]
) -> shapes.Drawing:
    centre, relations = opened.name(entity), opened.predictor.graph.vocabulary.relations
    nodes, edges = {centre: None}, {}
    for place in _turn_by_turn(list(groups.values())):
        other = opened.name(int(around.other[place]))
        if other not in nodes and len(nodes) > _MOST_KNOWN:
            continue
        nodes[other] = None
        relation = relations[int(around.relation[place])]
        ends = (other, centre) if around.reverse[place] else (centre, other)
        edges[ends[0], relation, ends[1]] = False
        if len(edges) == _MOST_EDGES:
            break
    for head, relation, tail in _new_facts(opened, centre, groups):
        other = tail if head == centre else head
        if other in nodes or len(nodes) < _MOST_NODES:
            nodes[other] = None
            edges[head, relation, tail] = True
    return shapes.Drawing(
        [shapes.Node(name, opened.labels.get(name)) for name in nodes],
        [shapes.Edge(*ends, predicted) for ends, predicted in edges.items()],
    )


def _turn_by_turn(groups: list[list[int]]) -> list[int]:
    """The first of every group, then the second of every group, and so on."""
    most = max(map(len, groups), default=0)
    return [group[turn] for turn in range(min(most, _MOST_EDGES)) for group in groups
            if turn < len(group)]  # fmt: skip


def _new_facts(
    opened: Opened, name: str, groups: dict[_Key, list[int]]
) -> list[tuple[str, str, str]]:
    """New facts that the model holds for likely, about relations the entity already has."""
    relations = opened.predictor.graph.vocabulary.relations
    asked: list[tuple[Side, str, str]] = [
        ("head" if reverse else "tail", name, relations[relation])
        for relation, reverse in list(groups)[:_ASKED]
    ]
    found = []
    for (side, _, relation), answers in zip(
        asked, opened.predictor.ask(asked, k=3, new=True), strict=True
    ):
        for each, likely in zip(answers.predictions, opened.calibrated(answers), strict=True):
            chance = each.probability if likely is None else likely
            if chance >= _LIKELY and each.entity != name:
                ends = (name, each.entity) if side == "tail" else (each.entity, name)
                found.append((chance, (ends[0], relation, ends[1])))
    found.sort(key=lambda each: -each[0])
    return [fact for _, fact in found]
