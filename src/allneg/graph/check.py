"""What a person should know of a graph before training on it."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np

from allneg.graph.categories import CATEGORIES
from allneg.graph.graph import SPLITS, Graph
from allneg.graph.keys import common, copies, triple_keys
from allneg.graph.mirrors import Echo, Echoes, find_echoes

__all__ = ["Check", "check", "graph_hashes"]


@dataclass(frozen=True)
class Check:
    """What `check` found. Relations are ids; `to_json` gives their names."""

    graph: Graph
    triples: dict[str, int]  # a split
    duplicates: dict[str, int]  # a split: triples that are not the first of their kind
    overlaps: dict[str, int]  # "train and valid", …: triples in both
    self_loops: dict[str, int]  # a split: triples whose head is their tail
    unseen_entities: int  # not in train
    unseen_relations: int
    unseen_triples: dict[str, int]  # of valid and of test: those that touch an unseen name
    echoes: Echoes
    categories: tuple[str, ...]  # a relation

    @property
    def overlapping(self) -> bool:
        return any(self.overlaps.values())

    def category_counts(self) -> dict[str, int]:
        counts = Counter(self.categories)
        return {category: counts[category] for category in CATEGORIES}

    def to_json(self) -> dict[str, Any]:
        names = self.graph.vocabulary.relations
        return {
            "name": self.graph.name,
            "entities": self.graph.n_entities,
            "relations": self.graph.n_relations,
            "triples": self.triples,
            "duplicates": self.duplicates,
            "overlaps": self.overlaps,
            "self_loops": self.self_loops,
            "unseen_entities": self.unseen_entities,
            "unseen_relations": self.unseen_relations,
            "unseen_triples": self.unseen_triples,
            "inverse": [_named(echo, names) for echo in self.echoes.inverse],
            "symmetric": [_named(echo, names) for echo in self.echoes.symmetric],
            "duplicate_relations": [_named(echo, names) for echo in self.echoes.duplicate],
            "told_by_train": self.echoes.told,
            "categories": self.category_counts(),
            "category_by_relation": dict(zip(names, self.categories, strict=True)),
            "hashes": graph_hashes(self.graph),
            "notes": list(self.graph.notes),
        }


def check(graph: Graph) -> Check:
    """Counts, duplicates, overlaps, unseen names, leakage through relations, categories.

    Duplicates show only in a graph that was read with `keep_duplicates`.
    """
    parts = {split: graph.split(split) for split in SPLITS}
    keys = triple_keys(list(parts.values()), graph.n_entities, graph.n_relations)
    ordered = {split: np.sort(each) for split, each in zip(SPLITS, keys, strict=True)}
    seen = np.bincount(graph.train[:, 1], minlength=graph.n_relations) > 0
    touching = {}
    for split in SPLITS[1:]:
        head, relation, tail = parts[split].T
        known = graph.seen[head] & seen[relation] & graph.seen[tail]
        touching[split] = int((~known).sum())
    return Check(
        graph=graph,
        triples={split: len(part) for split, part in parts.items()},
        duplicates={split: copies(each) for split, each in ordered.items()},
        overlaps={
            f"{one} and {other}": common(ordered[one], ordered[other])
            for one, other in combinations(SPLITS, 2)
        },
        self_loops={split: int((part[:, 0] == part[:, 2]).sum()) for split, part in parts.items()},
        unseen_entities=int((~graph.seen).sum()),
        unseen_relations=int((~seen).sum()),
        unseen_triples=touching,
        echoes=find_echoes(graph),
        categories=graph.categories,
    )


def graph_hashes(graph: Graph) -> dict[str, str]:
    """SHA-256 of each split's ids and of the names: two graphs are equal where these are.

    Ids are hashed as little-endian int64, row by row; names as UTF-8 with a NUL behind each.
    """
    found = {
        split: hashlib.sha256(graph.split(split).astype("<i8").tobytes()).hexdigest()
        for split in SPLITS
    }
    for kind, names in (
        ("entities", graph.vocabulary.entities),
        ("relations", graph.vocabulary.relations),
    ):
        text = "".join(f"{name}\0" for name in names)
        found[kind] = hashlib.sha256(text.encode()).hexdigest()
    return found


def _named(echo: Echo, names: tuple[str, ...]) -> dict[str, Any]:
    return asdict(echo) | {"first": names[echo.first], "second": names[echo.second]}
