"""Why an answer: entities like the asked one that have it, facts and paths between the two."""

from __future__ import annotations

from collections import Counter

import numpy as np

from allneg.graph.queries import Side
from allneg.graph.vocabulary import Vocabulary
from allneg.serving.facts import Around, Facts
from allneg.serving.shapes import Explanation, Fact, Path, Supporter
from allneg.serving.space import Space

_MOST = 8  # neighbours, and kinds of paths
_MOST_HOLDERS = 20_000  # entities with the answer that are compared with the asked one
_MOST_PATHS = 20_000  # that are counted


def explain(
    vocabulary: Vocabulary, facts: Facts, space: Space, triple: tuple[int, int, int], side: Side
) -> Explanation:
    """What in train speaks for a triple, asked for its `side`."""
    head, _, tail = triple
    joining = [
        [*_named(vocabulary, (h, r, t)), split] for h, r, t, split in facts.joining(head, tail)
    ]
    return Explanation(
        _supporters(vocabulary, facts, space, triple, side),
        joining,
        _paths(vocabulary, facts, head, tail),
    )


def _supporters(
    vocabulary: Vocabulary, facts: Facts, space: Space, triple: tuple[int, int, int], side: Side
) -> list[Supporter]:
    """The entities most like the asked one that have the same answer in train."""
    head, relation, tail = triple
    asked, answer = (head, tail) if side == "tail" else (tail, head)
    around = facts.around(answer)
    fits = (around.relation == relation) & (around.split == 0) & (around.other != asked)
    holders = np.unique(around.other[fits & (around.reverse == (side == "tail"))])
    chosen = holders[:_MOST_HOLDERS].tolist()
    ranked = sorted(zip(space.likeness(asked, chosen), chosen, strict=True), reverse=True)
    return [
        Supporter(
            vocabulary.entities[other],
            likeness,
            _named(
                vocabulary, (other, relation, tail) if side == "tail" else (head, relation, other)
            ),
        )
        for likeness, other in ranked[:_MOST]
    ]


def _paths(vocabulary: Vocabulary, facts: Facts, head: int, tail: int) -> list[Path]:
    """Two-step paths of train from head to tail, those of the same relations counted."""
    first, last = _steps(facts.around(head), head, tail), _steps(facts.around(tail), head, tail)
    count: Counter[tuple[tuple[int, bool], tuple[int, bool]]] = Counter()
    example: dict[tuple[tuple[int, bool], tuple[int, bool]], int] = {}
    walked = 0
    for middle in first.keys() & last.keys():
        for one in first[middle]:
            for relation, reverse in last[middle]:
                # Seen from the tail, a step towards it is the other way round.
                kind = (one, (relation, not reverse))
                count[kind] += 1
                example[kind] = min(middle, example.get(kind, middle))
                walked += 1
        if walked > _MOST_PATHS:
            break
    found = []
    best = sorted(count.items(), key=lambda each: (-each[1], each[0]))[:_MOST]
    for ((r1, back1), (r2, back2)), number in best:
        middle = example[(r1, back1), (r2, back2)]
        steps = [_fact(head, r1, middle, back1), _fact(middle, r2, tail, back2)]
        names = [
            "^" * back + vocabulary.relations[relation]
            for relation, back in ((r1, back1), (r2, back2))
        ]
        found.append(Path(names, number, [_named(vocabulary, step) for step in steps]))
    return found


def _steps(around: Around, head: int, tail: int) -> dict[int, list[tuple[int, bool]]]:
    """The steps of train from an entity to each other one: relation, and whether reversed."""
    some = (around.split == 0) & (around.other != head) & (around.other != tail)
    columns = (around.other[some], around.relation[some], around.reverse[some])
    found: dict[int, list[tuple[int, bool]]] = {}
    for other, relation, reverse in zip(*(each.tolist() for each in columns), strict=True):
        found.setdefault(other, []).append((relation, reverse))
    return found


def _fact(start: int, relation: int, end: int, reverse: bool) -> tuple[int, int, int]:
    return (end, relation, start) if reverse else (start, relation, end)


def _named(vocabulary: Vocabulary, triple: tuple[int, int, int]) -> Fact:
    head, relation, tail = triple
    return [vocabulary.entities[head], vocabulary.relations[relation], vocabulary.entities[tail]]
