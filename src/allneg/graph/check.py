"""What to know about a graph before training: counts, overlaps, leaks between relations."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.graph.clean import find_duplicates
from allneg.graph.graph import CATEGORIES, SPLITS, Graph, Triples

_LEAST_SHARE = 0.5  # of the larger relation's triples; smaller overlaps are not reported
_MOST_MATCHES = 1 << 22  # in memory at once

_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RelationOverlap:
    """Two relations that connect the same pairs of entities; the same one twice if symmetric."""

    first: str
    second: str
    triples: int  # of the first that the second repeats
    share: float  # of the larger relation's triples


_Overlaps: TypeAlias = tuple[RelationOverlap, ...]


@dataclass(frozen=True)
class Check:
    """What `check` found."""

    graph: Graph
    triples: dict[str, int]  # per split
    duplicates: dict[str, int]  # per split: triples that repeat an earlier one
    overlaps: dict[str, int]  # "train and valid", …: triples in both
    self_loops: dict[str, int]  # per split: triples whose head is their tail
    unseen_entities: int  # not in train
    unseen_relations: int
    unseen_triples: dict[str, int]  # valid and test triples with an unseen name
    # Pairs of relations with a share of at least one half over all splits, largest first.
    # Triples whose head is their tail are ignored, since they are their own inverse.
    inverse: _Overlaps  # (h, first, t) and (t, second, h)
    symmetric: _Overlaps  # (h, first, t) and (t, first, h)
    duplicate_relations: _Overlaps  # (h, first, t) and (h, second, t)
    leaked: dict[str, int]  # valid and test triples that follow from train by such a pair
    by_relation: dict[str, dict[str, int]]  # triples per relation and split, most in train first

    def category_counts(self) -> dict[str, int]:
        counts = Counter(self.graph.categories)
        return {category: counts[category] for category in CATEGORIES}

    def to_json(self) -> dict[str, Any]:
        graph, names = self.graph, self.graph.vocabulary.relations
        kinds = ("inverse", "symmetric", "duplicate_relations")
        fields = dict(vars(self))
        del fields["graph"], fields["leaked"]
        return {
            "name": graph.name,
            "entities": graph.n_entities,
            "relations": graph.n_relations,
            **fields,
            **{kind: [asdict(overlap) for overlap in fields[kind]] for kind in kinds},
            "leaked_by_train": self.leaked,
            "categories": self.category_counts(),
            "category_by_relation": dict(zip(names, graph.categories, strict=True)),
            "hashes": graph_hashes(graph),
            "notes": list(graph.notes),
        }


def check(graph: Graph) -> Check:
    """Check a graph. Only one that was read with `keep_duplicates` contains duplicates."""
    parts = {split: graph.split(split) for split in SPLITS}
    repeated, shared = find_duplicates(graph)
    return Check(
        graph=graph,
        triples={split: len(part) for split, part in parts.items()},
        duplicates={split: len(rows) for split, rows in repeated.items()},
        overlaps={f"{one} and {two}": count for (one, two), count in shared.items()},
        self_loops={split: int((part[:, 0] == part[:, 2]).sum()) for split, part in parts.items()},
        unseen_entities=int((~graph.seen).sum()),
        unseen_relations=int((~graph.seen_relations).sum()),
        unseen_triples={split: int((~graph.is_seen(parts[split])).sum()) for split in SPLITS[1:]},
        by_relation=_by_relation(graph),
        **_relation_overlaps(graph),
    )


def graph_hashes(graph: Graph) -> dict[str, str]:
    """SHA-256 of the ids of each split and of the names; equal graphs have equal hashes.

    Ids are hashed as little-endian int64, row by row; names as UTF-8, each followed by a NUL.
    """
    vocabulary = graph.vocabulary
    contents = {split: graph.split(split).astype("<i8").tobytes() for split in SPLITS}
    for kind, names in (("entities", vocabulary.entities), ("relations", vocabulary.relations)):
        contents[kind] = "".join(f"{name}\0" for name in names).encode()
    return {kind: hashlib.sha256(content).hexdigest() for kind, content in contents.items()}


def _by_relation(graph: Graph) -> dict[str, dict[str, int]]:
    relations = (graph.split(split)[:, 1] for split in SPLITS)
    counts = np.stack([np.bincount(column, minlength=graph.n_relations) for column in relations], 1)
    names, order = graph.vocabulary.relations, np.argsort(-counts[:, 0], kind="stable")
    return {
        names[relation]: dict(zip(SPLITS, counts[relation].tolist(), strict=True))
        for relation in order.tolist()
    }


def _relation_overlaps(graph: Graph) -> dict[str, Any]:
    """The fields of `Check` about relations that overlap."""
    parts = [part[part[:, 0] != part[:, 2]] for part in map(graph.split, SPLITS)]
    parts = [np.unique(part, axis=0) for part in parts]
    triples, reverse = np.unique(np.concatenate(parts), axis=0), [2, 1, 0]
    inverse, symmetric = _overlaps(triples, triples[:, reverse], graph)
    duplicate, _ = _overlaps(triples, triples, graph)
    leaked = {}
    for split, part in zip(SPLITS[1:], parts[1:], strict=True):
        found = _leaked(part, parts[0][:, reverse], inverse + symmetric, graph)
        found |= _leaked(part, parts[0], duplicate, graph)
        leaked[split] = int(found.sum())
    overlaps = {"inverse": inverse, "symmetric": symmetric, "duplicate_relations": duplicate}
    return {**overlaps, "leaked": leaked}


def _overlaps(ones: Triples, others: Triples, graph: Graph) -> tuple[_Overlaps, _Overlaps]:
    """Relations in `ones` and in `others` that share entity pairs: two relations, or the same."""
    n = graph.n_relations
    counts: Counter[int] = Counter()
    for rows, other in _matches(ones, others, graph.n_entities):
        codes, found = np.unique(ones[rows, 1] * n + other, return_counts=True)
        counts.update(dict(zip(codes.tolist(), found.tolist(), strict=True)))
    sizes, names = np.bincount(ones[:, 1], minlength=n).tolist(), graph.vocabulary.relations
    two: list[RelationOverlap] = []
    same: list[RelationOverlap] = []
    for code, count in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        first, second = divmod(code, n)
        share = count / max(sizes[first], sizes[second])
        if first <= second and share >= _LEAST_SHARE:
            overlap = RelationOverlap(names[first], names[second], count, share)
            (same if first == second else two).append(overlap)
    return tuple(two), tuple(same)


def _leaked(
    ones: Triples, others: Triples, overlaps: _Overlaps, graph: Graph
) -> npt.NDArray[np.bool_]:
    """Which of `ones` are in `others` under a relation that overlaps with their own: (n,)."""
    n, ids = graph.n_relations, graph.vocabulary.relation_ids
    pairs = [(ids[overlap.first], ids[overlap.second]) for overlap in overlaps]
    codes = np.array([a * n + b for a, b in pairs] + [b * n + a for a, b in pairs])
    leaked = np.zeros(len(ones), dtype=np.bool_)
    for rows, other in _matches(ones, others, graph.n_entities):
        leaked[rows[np.isin(ones[rows, 1] * n + other, codes)]] = True
    return leaked


def _matches(ones: Triples, others: Triples, n_entities: int) -> Iterator[tuple[_Ids, _Ids]]:
    """Rows of `ones`, and relations of `others` with the same head and tail, block by block."""
    keys = others[:, 0] * n_entities + others[:, 2]
    order = np.argsort(keys, kind="stable")
    keys, relations = keys[order], others[order, 1]
    wanted = ones[:, 0] * n_entities + ones[:, 2]
    low = np.searchsorted(keys, wanted)
    counts = np.searchsorted(keys, wanted, side="right") - low
    n_blocks = int(counts.sum()) // _MOST_MATCHES + 1
    for block in np.array_split(np.arange(len(ones)), n_blocks):
        rows = np.repeat(block, counts[block])
        before = np.cumsum(counts[block]) - counts[block]
        step = np.arange(len(rows)) - np.repeat(before, counts[block])
        yield rows, relations[low[rows] + step]
