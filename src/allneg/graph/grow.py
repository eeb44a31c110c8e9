"""A graph with facts added and removed; the names that it had keep their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, counted
from allneg.graph.graph import SPLITS, Graph, Triples, Vocabulary, triple_keys


@dataclass(frozen=True)
class Growth:
    """A grown graph, and what is new in it."""

    graph: Graph
    n_kept: int  # the first triples of train, which were there before
    removed: tuple[int, ...] = ()  # the entities of removed facts


def grow(graph: Graph, added: Graph | None, removed: Graph | None) -> Growth:
    """Remove the facts of one graph, then add those of another, by name.

    New names and facts are sorted, so their order in a file has no influence. The notes of the
    new graph report what was left out.
    """
    growth = Growth(replace(graph, notes=()), len(graph.train))
    if removed is not None:
        growth = _without(growth.graph, removed)
    return growth if added is None else _with(growth, added)


def _without(graph: Graph, other: Graph) -> Growth:
    facts = np.concatenate(list(_ids(other, graph.vocabulary).values()))
    facts = facts[(facts >= 0).all(1)]
    parts = [graph.split(split) for split in SPLITS]
    *keys, gone = _keys([*parts, facts], graph)
    is_kept = [~np.isin(some, gone) for some in keys]
    found = np.isin(gone, np.concatenate(keys))
    n_given, n_found = sum(len(other.split(split)) for split in SPLITS), int(found.sum())
    if not n_found:
        raise DataError(f"{other.name}: none of its facts is in {graph.name}; nothing to remove")
    splits: dict[str, Any] = {
        split: part[kept] for split, part, kept in zip(SPLITS, parts, is_kept, strict=True)
    }
    if not len(splits["train"]):
        raise DataError(f"{other.name}: has all facts of train, and one must stay")
    weights = None if graph.weights is None else graph.weights[is_kept[0]]
    notes = [f"{counted(n_found, 'fact')} removed"]
    if n_found < n_given:
        notes.append(f"{n_given - n_found:,} of the facts to remove are not in {graph.name}")
    graph = replace(graph, **splits, weights=weights, notes=tuple(notes))
    return Growth(graph, len(graph.train), tuple(np.unique(facts[found][:, [0, 2]]).tolist()))


def _with(growth: Growth, other: Graph) -> Growth:
    graph, names = growth.graph, growth.graph.vocabulary
    entities = _new(other.vocabulary.entities, names.entity_ids)
    relations = _new(other.vocabulary.relations, names.relation_ids)
    vocabulary = Vocabulary((*names.entities, *entities), (*names.relations, *relations))
    labels = {**graph.labels, **other.labels}
    graph = replace(graph, vocabulary=vocabulary, labels=labels)
    splits: dict[str, Any] = {}
    notes, weights = list(graph.notes), graph.weights
    for split, facts in _ids(other, vocabulary).items():
        if not len(facts):
            continue
        old = graph.split(split)
        others = [name for name in SPLITS if name != split]
        known, new, *elsewhere = _keys([old, facts, *map(graph.split, others)], graph)
        order = np.lexsort(facts.T[::-1])
        fresh = order[~np.isin(new[order], known)]
        splits[split] = np.concatenate([old, facts[fresh]])
        if n_known := len(facts) - len(fresh):
            verb = "was" if n_known == 1 else "were"
            notes.append(f"{counted(n_known, 'fact')} {verb} in {split} already")
        if n_both := int(np.isin(new[fresh], np.concatenate(elsewhere)).sum()):
            verb, where = "is" if n_both == 1 else "are", " or ".join(others)
            notes.append(f"{n_both:,} of the new facts of {split} {verb} also in {where}")
        if split == "train":
            weights = _weights(graph, other, fresh)
    graph = replace(graph, **splits, weights=weights, notes=tuple(notes))
    return replace(growth, graph=graph)


def n_in_train(graph: Graph, earlier: Graph) -> int:
    """How many facts of valid and test are in train of an earlier graph."""
    train = _ids(earlier, graph.vocabulary)["train"]
    ranked = np.concatenate([graph.valid, graph.test])
    ranked_keys, keys = _keys([ranked, train[(train >= 0).all(1)]], graph)
    return int(np.isin(ranked_keys, keys).sum())


def _new(names: Sequence[str], known: Mapping[str, int]) -> list[str]:
    return sorted(name for name in names if name not in known)


def _ids(graph: Graph, names: Vocabulary) -> dict[str, Triples]:
    """The splits of a graph in the ids of other names; -1 for a name that is not among them."""
    entities, relations = (
        np.array([ids.get(name, -1) for name in own], dtype=np.int64)
        for own, ids in (
            (graph.vocabulary.entities, names.entity_ids),
            (graph.vocabulary.relations, names.relation_ids),
        )
    )
    columns = (entities, relations, entities)
    return {
        split: np.stack([ids[graph.split(split)[:, i]] for i, ids in enumerate(columns)], axis=1)
        for split in SPLITS
    }


def _keys(parts: list[Triples], graph: Graph) -> list[npt.NDArray[np.int64]]:
    return triple_keys(parts, graph.n_entities, graph.n_relations)


def _weights(
    graph: Graph, other: Graph, rows: npt.NDArray[np.int64]
) -> npt.NDArray[np.float32] | None:
    """The weights of train and of these new facts; 1 where only the others have weights."""
    if graph.weights is None and other.weights is None:
        return None
    old, new = (
        np.ones(len(each.train), dtype=np.float32) if each.weights is None else each.weights
        for each in (graph, other)
    )
    return np.concatenate([old, new[rows]])
