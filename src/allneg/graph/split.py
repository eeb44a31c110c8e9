"""One file of triples → train, valid and test, by a seed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from allneg.errors import counted
from allneg.graph.graph import SPLITS, Triples, triple_keys
from allneg.graph.vocabulary import Vocabulary
from allneg.recipe import Data


def split_triples(
    triples: Triples, vocabulary: Vocabulary, settings: Data
) -> tuple[dict[str, Triples], Vocabulary, list[str]]:
    """The three splits, each in file order, with new ids; and notes.

    Train contains every entity and relation: one triple of each, chosen by the seed, stays
    there. Copies of a triple go to the same split. Ids follow first appearance, train first.
    """
    (keys,) = triple_keys([triples], len(vocabulary.entities), len(vocabulary.relations))
    _, first, copy_of = np.unique(keys, return_index=True, return_inverse=True)
    # Shuffle file lines, not keys: the result must not depend on the ids.
    order = np.random.default_rng(settings.split_seed).permutation(len(first))
    shuffled = np.argsort(first)[order]
    free = shuffled[~_needed_in_train(triples[first][shuffled])]
    wanted = [round(share * len(first)) for share in (settings.valid_share, settings.test_share)]
    possible = min(1.0, len(free) / max(1, sum(wanted)))
    n_valid, n_test = (int(count * possible) for count in wanted)
    split = np.zeros(len(first), dtype=np.int64)  # an index into SPLITS
    split[free[:n_valid]] = 1
    split[free[n_valid : n_valid + n_test]] = 2
    parts = [triples[split[copy_of] == number] for number in range(len(SPLITS))]
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in zip(SPLITS, parts, strict=True))
    total, seed = counted(len(triples), "triple"), settings.split_seed
    notes = [f"one file of {total}, split by seed {seed}: {sizes}"]
    if n_valid + n_test < sum(wanted):
        notes.append(
            f"only {n_valid + n_test:,} of {counted(sum(wanted), 'triple')} could be held out: "
            "the others are the only ones of an entity or relation and stay in train"
        )
    renumbered, vocabulary = _renumbered(np.concatenate(parts), vocabulary)
    ends = np.cumsum([len(part) for part in parts])[:-1]
    return dict(zip(SPLITS, np.split(renumbered, ends), strict=True)), vocabulary, notes


def _needed_in_train(triples: Triples) -> npt.NDArray[np.bool_]:
    """Which triples are the first of an entity or a relation: (n, 3) -> (n,)."""
    needed = np.zeros(len(triples), dtype=np.bool_)
    needed[np.unique(triples[:, 1], return_index=True)[1]] = True
    needed[np.unique(triples[:, [0, 2]].reshape(-1), return_index=True)[1] // 2] = True
    return needed


def _renumbered(triples: Triples, vocabulary: Vocabulary) -> tuple[Triples, Vocabulary]:
    """The same triples with ids in order of first appearance."""
    entities, new_entities = _by_appearance(triples[:, [0, 2]].reshape(-1))
    relations, new_relations = _by_appearance(triples[:, 1])
    new = np.stack([new_entities[0::2], new_relations, new_entities[1::2]], axis=1)
    return new, Vocabulary(
        tuple(vocabulary.entities[old] for old in entities.tolist()),
        tuple(vocabulary.relations[old] for old in relations.tolist()),
    )


def _by_appearance(ids: npt.NDArray[np.int64]) -> tuple[Triples, Triples]:
    """The distinct ids in order of first appearance, and each id's number in that order."""
    values, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    number = np.empty_like(order)
    number[order] = np.arange(len(order))
    return values[order], number[inverse]
