"""Reasons for an answer: similar entities with the same answer, facts and paths in train."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allneg.graph.graph import Vocabulary
from allneg.graph.queries import Side
from allneg.predict.facts import Facts
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.schemas import Explanation, Fact, Path, Supporter

_MAX_SHOWN = 8  # entities, and kinds of paths
_MAX_COMPARED = 20_000  # entities with the same answer
_MAX_PATHS = 20_000  # that are counted

Step = tuple[int, bool]  # a relation, and whether it is followed from tail to head


def explain(run: LoadedRun, triple: tuple[str, str, str], side: Side) -> Explanation:
    """What in train supports a triple as the answer on `side` of a query."""
    head, tail = run.entity_id(triple[0]), run.entity_id(triple[2])
    relation = run.relation_id(triple[1])
    names, facts = run.predictor.graph.vocabulary, run.facts
    between = [[*_named(names, *fact), split] for *fact, split in facts.between(head, tail)]
    entity, answer = (head, tail) if side == "tail" else (tail, head)
    around = facts.of_entity(answer)
    same = (around.relation == relation) & (around.split == 0) & (around.other != entity)
    holders = np.unique(around.other[same & (around.reverse == (side == "tail"))])
    others = holders[:_MAX_COMPARED].tolist()
    similarities = run.vectors.similarities(entity, others)
    ranked = sorted(zip(similarities, others, strict=True), reverse=True)
    supporters = []
    for similarity, other in ranked[:_MAX_SHOWN]:
        ends = (other, tail) if side == "tail" else (head, other)
        fact = _named(names, ends[0], relation, ends[1])
        supporters.append(Supporter(names.entities[other], similarity, fact))
    return Explanation(supporters, between, _paths(names, facts, head, tail))


def _paths(names: Vocabulary, facts: Facts, head: int, tail: int) -> list[Path]:
    """Paths of two facts in train from head to tail, grouped by their relations."""
    first, last = _steps(facts, head, tail), _steps(facts, tail, head)
    count: Counter[tuple[Step, Step]] = Counter()
    example: dict[tuple[Step, Step], int] = {}
    for middle in sorted(first.keys() & last.keys()):
        for step in first[middle]:
            for relation, reverse in last[middle]:
                # `last` starts at the tail: its steps are followed in the other direction.
                kind = (step, (relation, not reverse))
                count[kind] += 1
                example.setdefault(kind, middle)
        if count.total() > _MAX_PATHS:
            break
    paths = []
    for kind, number in sorted(count.items(), key=lambda item: (-item[1], item[0]))[:_MAX_SHOWN]:
        relations = ["^" * reverse + names.relations[relation] for relation, reverse in kind]
        ends = ((head, example[kind]), (example[kind], tail))
        steps = [
            (end, relation, start) if reverse else (start, relation, end)
            for (relation, reverse), (start, end) in zip(kind, ends, strict=True)
        ]
        paths.append(Path(relations, number, [_named(names, *step) for step in steps]))
    return paths


def _steps(facts: Facts, start: int, end: int) -> dict[int, list[Step]]:
    """The steps in train from an entity to every other one, except `end` and itself."""
    around = facts.of_entity(start)
    steps: dict[int, list[Step]] = {}
    mask = (around.split == 0) & (around.other != start) & (around.other != end)
    for relation, other, _, reverse in around.rows(mask):
        steps.setdefault(other, []).append((relation, reverse))
    return steps


def _named(names: Vocabulary, head: int, relation: int, tail: int) -> Fact:
    return [names.entities[head], names.relations[relation], names.entities[tail]]
