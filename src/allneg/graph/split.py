"""One list of triples → train, valid and test. Lines that are added later move no earlier triple.

Two rules decide about a triple:

1. The first triple that names an entity or a relation is in train, so train contains every name.
2. A hash of the names and the seed gives a number u from 0 to 1. The triple is in test if u is
   less than the share of test, in valid if 1 - u is at most the share of valid, else in train.

Both depend only on the triple, the seed, the shares, and earlier lines.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.errors import counted
from allneg.graph.graph import SPLITS, Triples, Vocabulary, first_indices, triple_keys
from allneg.recipe import Data

Shares: TypeAlias = Mapping[str, tuple[float, float]]  # by relation: valid, test

# Odd numbers. The last two and the shifts are the finalizer of SplitMix64 (Steele et al., 2014).
_COLUMNS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_MIXERS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1))


def split_triples(
    triples: Triples,
    names: Vocabulary,
    settings: Data,
    relation_shares: Shares | None = None,
    keeps_ids: bool = False,
) -> tuple[dict[str, Triples], Vocabulary, list[str], npt.NDArray[np.int64]]:
    """The three splits, each in file order, names, notes, and the rows that became train.

    `relation_shares` replaces the shares of valid and test for some relations. Copies of a triple
    are in the same split. Unless `keeps_ids`, ids are new: in the order of first appearance, train
    first.
    """
    (keys,) = triple_keys([triples], len(names.entities), len(names.relations))
    _, first, copy_of = np.unique(keys, return_index=True, return_inverse=True)
    distinct = triples[first]
    valid, test = _shares(names, settings, relation_shares or {})[distinct[:, 1]].T
    u = _hashed(distinct, names, settings.split_seed)
    split = np.zeros(len(first), dtype=np.int64)  # an index into SPLITS
    split[u >= 1 - valid] = 1
    split[u < test] = 2
    is_first = np.zeros(len(triples), dtype=np.bool_)
    is_first[first_indices(triples[:, 1])] = True
    is_first[first_indices(triples[:, [0, 2]].reshape(-1)) // 2] = True
    n_kept = int((is_first[first] & (split > 0)).sum())
    split[is_first[first]] = 0
    rows = [np.flatnonzero(split[copy_of] == number) for number in range(len(SPLITS))]
    parts = [triples[some] for some in rows]
    sizes = ", ".join(f"{name} {len(part):,}" for name, part in zip(SPLITS, parts, strict=True))
    total = counted(len(triples), "triple")
    notes = [f"one file of {total}, split by a hash and seed {settings.split_seed}: {sizes}"]
    if n_kept:
        notes.append(
            f"{counted(n_kept, 'triple')} chosen for valid or test {'is' if n_kept == 1 else 'are'}"
            " in train: the first of an entity or a relation"
        )
    if not keeps_ids:
        renumbered, names = _renumbered(np.concatenate(parts), names)
        parts = np.split(renumbered, np.cumsum([len(part) for part in parts])[:-1])
    return dict(zip(SPLITS, parts, strict=True)), names, notes, rows[0]


def _shares(names: Vocabulary, settings: Data, changed: Shares) -> npt.NDArray[np.float64]:
    """The shares of valid and test of each relation: (R, 2)."""
    usual = (settings.valid_share, settings.test_share)
    shares = np.tile(np.array(usual), (len(names.relations), 1))
    for name, pair in changed.items():
        shares[names.relation(name)] = pair
    return shares


def _hashed(triples: Triples, names: Vocabulary, seed: int) -> npt.NDArray[np.float64]:
    """A number of [0, 1) per triple, from its names and the seed: (n, 3) -> (n,)."""
    entities, relations = (_name_hashes(kind, seed) for kind in (names.entities, names.relations))
    heads, links, tails = triples.T
    mixed = entities[heads] * _COLUMNS[0] + relations[links] * _COLUMNS[1]
    mixed += entities[tails] * _COLUMNS[2]
    for shift, factor in _MIXERS:
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    numbers: npt.NDArray[np.float64] = (mixed >> np.uint64(11)) * 2.0**-53
    return numbers


def _name_hashes(names: Sequence[str], seed: int) -> npt.NDArray[np.uint64]:
    key = str(seed).encode()
    encoded = (name.encode(errors="surrogatepass") for name in names)
    digests = b"".join(blake2b(name, digest_size=8, key=key).digest() for name in encoded)
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def _renumbered(triples: Triples, names: Vocabulary) -> tuple[Triples, Vocabulary]:
    """The same triples with ids in order of first appearance."""
    triples, new_names = triples.copy(), []
    for columns, old_names in (([0, 2], names.entities), ([1], names.relations)):
        ids = triples[:, columns].reshape(-1)
        order = ids[first_indices(ids)]
        new_ids = np.empty(len(old_names), dtype=np.int64)
        new_ids[order] = np.arange(len(order))
        triples[:, columns] = new_ids[triples[:, columns]]
        new_names.append(tuple(old_names[old] for old in order.tolist()))
    return triples, Vocabulary(*new_names)
