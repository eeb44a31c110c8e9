"""Splits the geography triples: at random, or so that no held-out fact can be read off train.

In the second split a fact leaves train together with everything a rule would give it back from:
its mirror image, what implies it, and one link of every chain that leads to it.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

Triple: TypeAlias = tuple[str, str, str]
Together: TypeAlias = Callable[[Triple, Mapping[Triple, str]], set[Triple]]

SEED = 1
SHARE = 0.1  # of all triples, in valid and in test each
LARGEST_GROUP = 8  # triples that may leave train together

# What can be read off train by a rule. r(x, y) gives s(y, x):
MIRRORS = {
    "borders": "borders",
    "capital_of": "has_capital",
    "has_capital": "capital_of",
    "city_in": "contains_city",
    "contains_city": "city_in",
}
# s(x, y) follows from r(x, y), written s: r:
IMPLIED_BY = {"city_in": "capital_of", "speaks": "official_language"}
# t(x, z) follows from r(x, y) and s(y, z), written t: (r, s, which of the two leaves train):
CHAINS = {
    "city_in_subregion": ("city_in", "in_subregion", 0),
    "in_region": ("in_subregion", "subregion_of", 0),
    "in_subregion": ("contains_city", "city_in_subregion", 1),
}


def split(facts: set[Triple], together: Together, stay: frozenset[str]) -> dict[Triple, str]:
    """The triples that leave train, and for which split: 'valid' or 'test'.

    `together` gives what has to leave with a triple. Relations in `stay` never leave, and
    every entity keeps a triple in train.
    """
    order = sorted(triple for triple in facts if triple[1] not in stay)
    random.Random(SEED).shuffle(order)
    left = Counter(entity for head, _, tail in facts for entity in (head, tail))
    held: dict[Triple, str] = {}
    room = dict.fromkeys(("valid", "test"), round(SHARE * len(facts)))
    for triple in order:
        if triple in held:
            continue
        name = max(("test", "valid"), key=lambda name: room[name])
        group = together(triple, held)
        lost = Counter(entity for head, _, tail in group for entity in (head, tail))
        if len(group) > min(room[name], LARGEST_GROUP) or any(left[e] <= lost[e] for e in lost):
            continue
        held.update(dict.fromkeys(group, name))
        left.subtract(lost)
        room[name] -= len(group)
    return held


def leaving_together(facts: set[Triple]) -> Together:
    """A triple, and of every rule that gives it one triple that is still in train."""
    tails = defaultdict(set)
    for head, relation, tail in facts:
        tails[head, relation].add(tail)

    def ways(triple: Triple) -> Iterable[tuple[Triple, Iterable[Triple]]]:
        """Every rule that gives the triple: the one to remove, and all it needs."""
        head, relation, tail = triple
        if relation in MIRRORS:
            yield (tail, MIRRORS[relation], head), [(tail, MIRRORS[relation], head)]
        if relation in IMPLIED_BY:
            yield (head, IMPLIED_BY[relation], tail), [(head, IMPLIED_BY[relation], tail)]
        if relation in CHAINS:
            first, second, weak = CHAINS[relation]
            for middle in sorted(tails[head, first]):
                both = [(head, first, middle), (middle, second, tail)]
                yield both[weak], both

    def together(triple: Triple, held: Mapping[Triple, str]) -> set[Triple]:
        group, waiting = {triple}, [triple]
        while waiting:
            for weak, needed in ways(waiting.pop()):
                if all(each in facts and each not in held and each not in group for each in needed):
                    group.add(weak)
                    waiting.append(weak)
        return group

    return together
