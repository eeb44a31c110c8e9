"""Reasons for an answer: similar entities with the same answer, facts and paths in train."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allneg.graph.queries import Side
from allneg.graph.vocabulary import Vocabulary
from allneg.predict.facts import Facts
from allneg.serve.embedding import EntityVectors
from allneg.serve.schemas import Explanation, Fact, Path, Supporter

_MAX_SHOWN = 8  # entities, and kinds of paths
_MAX_COMPARED = 20_000  # entities with the same answer
_MAX_PATHS = 20_000  # that are counted

Triple = tuple[int, int, int]
Step = tuple[int, bool]  # a relation, and whether it is followed from tail to head


def explain(
    names: Vocabulary, facts: Facts, vectors: EntityVectors, triple: Triple, side: Side
) -> Explanation:
    """What in train supports a triple as the answer on `side` of a query."""
    head, relation, tail = triple
    between = [[*_named(names, (h, r, t)), split] for h, r, t, split in facts.between(head, tail)]
    entity, answer = (head, tail) if side == "tail" else (tail, head)
    around = facts.of_entity(answer)
    same = (around.relation == relation) & (around.split == 0) & (around.other != entity)
    holders = np.unique(around.other[same & (around.reverse == (side == "tail"))])
    others = holders[:_MAX_COMPARED].tolist()
    ranked = sorted(zip(vectors.similarities(entity, others), others, strict=True), reverse=True)
    supporters = []
    for similarity, other in ranked[:_MAX_SHOWN]:
        fact = (other, relation, tail) if side == "tail" else (head, relation, other)
        supporters.append(Supporter(names.entities[other], similarity, _named(names, fact)))
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
        paths.append(Path(relations, number, [_named(names, step) for step in steps]))
    return paths


def _steps(facts: Facts, start: int, end: int) -> dict[int, list[Step]]:
    """The steps in train from an entity to every other one, except `end` and itself."""
    around = facts.of_entity(start)
    steps: dict[int, list[Step]] = {}
    mask = (around.split == 0) & (around.other != start) & (around.other != end)
    for relation, other, _, reverse in around.rows(mask):
        steps.setdefault(other, []).append((relation, reverse))
    return steps


def _named(names: Vocabulary, triple: Triple) -> Fact:
    head, relation, tail = triple
    return [names.entities[head], names.relations[relation], names.entities[tail]]
