"""Split the geography triples: at random, or so that no held-out fact follows from train.

In the second split, a fact leaves train with a group of facts that would imply it: its inverse,
facts that imply it directly, and one link of every chain that leads to it.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

Triple: TypeAlias = tuple[str, str, str]
GroupOf: TypeAlias = Callable[[Triple, Mapping[Triple, str]], set[Triple]]

SEED = 1
SHARE = 0.1  # of all triples, for valid and for test
LARGEST_GROUP = 8  # triples that may leave train as one group

# Rules. r(x, y) implies s(y, x):
INVERSES = {
    "borders": "borders",
    "capital_of": "has_capital",
    "has_capital": "capital_of",
    "city_in": "contains_city",
    "contains_city": "city_in",
}
# r(x, y) implies s(x, y), written s: r:
IMPLIED_BY = {"city_in": "capital_of", "speaks": "official_language"}
# r(x, y) and s(y, z) imply t(x, z), written t: (r, s, index of the one that leaves train):
CHAINS = {
    "city_in_subregion": ("city_in", "in_subregion", 0),
    "in_region": ("in_subregion", "subregion_of", 0),
    "in_subregion": ("contains_city", "city_in_subregion", 1),
}


def split(facts: set[Triple], group_of: GroupOf, stay: frozenset[str]) -> dict[Triple, str]:
    """The triples that leave train, and for which split: 'valid' or 'test'.

    `group_of` gives the triples that must leave with a triple. Relations in `stay` never leave,
    and every entity keeps a triple in train.
    """
    order = sorted(triple for triple in facts if triple[1] not in stay)
    random.Random(SEED).shuffle(order)
    left = Counter(entity for head, _, tail in facts for entity in (head, tail))
    held: dict[Triple, str] = {}
    space = dict.fromkeys(("valid", "test"), round(SHARE * len(facts)))
    for triple in order:
        if triple in held:
            continue
        name = max(("test", "valid"), key=lambda name: space[name])
        group = group_of(triple, held)
        lost = Counter(entity for head, _, tail in group for entity in (head, tail))
        if len(group) > min(space[name], LARGEST_GROUP) or any(left[e] <= lost[e] for e in lost):
            continue
        held.update(dict.fromkeys(group, name))
        left.subtract(lost)
        space[name] -= len(group)
    return held


def implying_group(facts: set[Triple]) -> GroupOf:
    """A function that gives a triple and, for every rule that implies it, one premise in train."""
    tails = defaultdict(set)
    for head, relation, tail in facts:
        tails[head, relation].add(tail)

    def premises(triple: Triple) -> Iterable[tuple[Triple, Iterable[Triple]]]:
        """For every rule that implies the triple: the premise to remove, and all premises."""
        head, relation, tail = triple
        if relation in INVERSES:
            yield (tail, INVERSES[relation], head), [(tail, INVERSES[relation], head)]
        if relation in IMPLIED_BY:
            yield (head, IMPLIED_BY[relation], tail), [(head, IMPLIED_BY[relation], tail)]
        if relation in CHAINS:
            first, second, removed = CHAINS[relation]
            for middle in sorted(tails[head, first]):
                both = [(head, first, middle), (middle, second, tail)]
                yield both[removed], both

    def group_of(triple: Triple, held: Mapping[Triple, str]) -> set[Triple]:
        group, waiting = {triple}, [triple]
        while waiting:
            for removed, needed in premises(waiting.pop()):
                if all(fact in facts and fact not in held and fact not in group for fact in needed):
                    group.add(removed)
                    waiting.append(removed)
        return group

    return group_of
