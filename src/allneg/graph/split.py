"""One file of triples → train, valid and test, by a seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from allneg.errors import counted
from allneg.graph.graph import SPLITS, Triples
from allneg.graph.keys import triple_keys
from allneg.graph.vocabulary import Vocabulary
from allneg.recipe import Data


def split_triples(
    triples: Triples, vocabulary: Vocabulary, settings: Data
) -> tuple[dict[str, Triples], list[str]]:
    """The three splits, each in the order of the file, and notes.

    Every entity and relation occurs in train: one triple of each, chosen by the seed, stays
    there. Copies of a triple go to the same split.
    """
    sizes = len(vocabulary.entities), len(vocabulary.relations)
    (keys,) = triple_keys([triples], *sizes)
    _, first, copy_of = np.unique(keys, return_index=True, return_inverse=True)
    unique = triples[first]
    # The order of file lines, not of keys, so that a seed means the same whatever the ids are.
    shuffled = np.argsort(first)[
        np.random.default_rng(settings.split_seed).permutation(len(unique))
    ]
    free = shuffled[~_keepers(unique[shuffled])]
    wanted = [round(share * len(unique)) for share in (settings.valid_share, settings.test_share)]
    possible = min(1.0, len(free) / max(1, sum(wanted)))
    n_valid, n_test = (int(count * possible) for count in wanted)
    place = np.zeros(len(unique), dtype=np.int64)  # a position in SPLITS
    place[free[:n_valid]] = 1
    place[free[n_valid : n_valid + n_test]] = 2
    everyone = place[copy_of]
    splits = {name: triples[everyone == number] for number, name in enumerate(SPLITS)}
    notes = [
        f"one file of {counted(len(triples), 'triple')}, split by seed {settings.split_seed}: "
        + ", ".join(f"{name} {len(part):,}" for name, part in splits.items())
    ]
    if n_valid + n_test < sum(wanted):
        notes.append(
            f"only {n_valid + n_test:,} of {counted(sum(wanted), 'triple')} could be held out: "
            "the others are the only ones of an entity or relation, and stay in train"
        )
    return splits, notes


def renumbered(
    splits: dict[str, Triples], vocabulary: Vocabulary
) -> tuple[dict[str, Triples], Vocabulary]:
    """The same triples with ids in order of first appearance, train first."""
    triples = np.concatenate([splits[name] for name in SPLITS])
    entities = _by_appearance(triples[:, [0, 2]].reshape(-1))
    relations = _by_appearance(triples[:, 1])
    new_entity = np.empty(len(vocabulary.entities), dtype=np.int64)
    new_relation = np.empty(len(vocabulary.relations), dtype=np.int64)
    new_entity[entities], new_relation[relations] = np.arange(len(entities)), range(len(relations))
    changed = {
        name: np.stack(
            [new_entity[part[:, 0]], new_relation[part[:, 1]], new_entity[part[:, 2]]], axis=1
        )
        for name, part in splits.items()
    }
    return changed, Vocabulary(
        tuple(vocabulary.entities[each] for each in entities.tolist()),
        tuple(vocabulary.relations[each] for each in relations.tolist()),
    )


def _keepers(triples: Triples) -> npt.NDArray[np.bool_]:
    """Which triples are the first of an entity or a relation: (n, 3) -> (n,)."""
    keep = np.zeros(len(triples), dtype=np.bool_)
    keep[np.unique(triples[:, 1], return_index=True)[1]] = True
    keep[np.unique(triples[:, [0, 2]].reshape(-1), return_index=True)[1] // 2] = True
    return keep


def _by_appearance(ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The different ids, in order of first appearance."""
    values, first = np.unique(ids, return_index=True)
    return values[np.argsort(first)]
