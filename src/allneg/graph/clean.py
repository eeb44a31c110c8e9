"""What was read → a graph: split, without duplicates, with notes on what is unusual."""

import csv
import io
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, product
from typing import Any, TypeAlias
from unicodedata import normalize

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, counted, printable
from allneg.graph.blocks import last_part
from allneg.graph.graph import (
    SPLITS,
    Graph,
    Triples,
    Vocabulary,
    distinct,
    first_indices,
    triple_keys,
)
from allneg.graph.mapped import name_texts, release, without_rows
from allneg.graph.split import Shares, split_triples
from allneg.recipe import Data
from allneg.recipe.parts import listed_names

_Rows: TypeAlias = npt.NDArray[np.int64]

_SPLITTING = ("valid_share", "test_share", "split_seed")  # settings of one list of triples
_FEWEST_RELATIONS = 5  # for judging the order of columns; toy graphs show nothing
_CASE = "upper and lower case"
# What two names may differ in: which names, between line feeds, to look at; and the form in which
# they are compared.
_LOOK_ALIKES: dict[str, tuple[Callable[[str], object], Callable[[str], str]]] = {
    "spaces around the name": (re.compile(r"\n(?:(?=[^\S\n])|(?<=[^\S\n]\n))").search, str.strip),
    "Unicode form (NFC, NFD)": (lambda text: not text.isascii(), partial(normalize, "NFC")),
    _CASE: (lambda text: text != text.lower(), str.casefold),
}
_NAMES = 1 << 22  # names compared at once, roughly
_GROUP = 1 << 22  # triples per sort, roughly
# Odd constants that mix ids well, so that groups have about equal sizes.
_MIX = np.array([0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB], dtype=np.uint64)


@dataclass(frozen=True)
class Read:
    """What was read. The split "" is one list of triples that is to be split."""

    splits: Mapping[str, Triples]
    names: Vocabulary
    notes: Sequence[str] = ()
    weights: npt.NDArray[np.float32] | None = None  # of train, or of the split ""
    labels: Mapping[str, str] = field(default_factory=dict)
    keeps_ids: bool = False  # ids were computed elsewhere


def cleaned(name: str, read: Read, settings: Data, relation_shares: Shares | None = None) -> Graph:
    """The graph of what was read; `relation_shares` are those of `split_triples`."""
    if "" in read.splits:
        splits, names, found, rows = split_triples(
            read.splits[""], read.names, settings, relation_shares, read.keeps_ids
        )
        weights = None if read.weights is None else read.weights[rows]
        notes = [*read.notes, *found]
        read = replace(read, splits=splits, names=names, notes=notes, weights=weights)
    else:
        # A share of 0 asks for no split.
        unused = [f"data.{x}" for x in _SPLITTING if getattr(settings, x) not in (0, vars(Data)[x])]
        notes = [f"{name}: {x} has no effect, since the splits are given" for x in unused]
        read = replace(read, notes=[*read.notes, *notes])
    empty = np.empty((0, 3), dtype=np.int64)
    train, valid, test = (read.splits.get(split, empty) for split in SPLITS)
    graph = Graph(
        name, read.names, train, valid, test, tuple(read.notes), read.labels, read.weights
    )
    graph = _noted(graph, *_column_notes(graph, settings.columns), *_absent(graph, settings))
    graph = _noted(graph, *(f"{split} is empty" for split in SPLITS if not len(graph.split(split))))
    graph = without_unseen(_without_duplicates(graph, settings), settings, read.keeps_ids)
    kinds = product(("entities", "relations"), _LOOK_ALIKES)
    look_alikes = [
        _look_alikes(graph.vocabulary, *kind)
        for kind in kinds
        if kind != ("entities", _CASE)  # usual in large graphs: words, ids
    ]
    return _noted(graph, *filter(None, look_alikes))


def _noted(graph: Graph, *notes: str, **changes: Any) -> Graph:
    texts = tuple(f"{graph.name}: {note}" for note in notes)
    return replace(graph, notes=(*graph.notes, *texts), **changes)


def _without_duplicates(graph: Graph, settings: Data) -> Graph:
    """Remove repeated triples within a split, unless settings keep them."""
    repeated, shared = find_duplicates(graph)
    for split in SPLITS:
        release(graph.split(split))
    notes, changes = list[str](), dict[str, Any]()
    for split, rows in repeated.items():
        if len(rows):
            notes.append(duplicates_note(len(rows), split, settings.keep_duplicates))
            if not settings.keep_duplicates:
                changes[split] = without_rows(graph.split(split), rows)
                if split == "train" and graph.weights is not None:
                    changes["weights"] = np.delete(graph.weights, rows)
    for (one, other), count in shared.items():
        if count:
            verb = "is" if count == 1 else "are"
            notes.append(f"{counted(count, 'triple')} {verb} in both {one} and {other}")
    return _noted(graph, *notes, **changes)


def duplicates_note(count: int, split: str, kept: bool) -> str:
    verb = "is" if count == 1 else "are"
    return f"{counted(count, 'duplicate triple')} in {split} {verb} {'kept' if kept else 'removed'}"


def without_unseen(graph: Graph, settings: Data, keeps_ids: bool) -> Graph:
    """Count names that are not in train, and remove their triples with data.drop_unseen."""
    n_entities, n_relations = int(graph.seen.sum()), int(graph.seen_relations.sum())
    new_entities, new_relations = graph.n_entities - n_entities, graph.n_relations - n_relations
    if not new_entities and not new_relations:
        return graph
    kept, counts = {}, []
    for split in ("valid", "test"):
        is_seen = graph.is_seen(graph.split(split))
        kept[split] = graph.split(split)[is_seen]
        counts.append(f"{int((~is_seen).sum()):,} {split}")
    note = (
        f"{counted(new_entities, 'entity')} and {counted(new_relations, 'relation')} are not in "
        f"train; they occur in {' and '.join(counts)} triples, which are "
    )
    if not settings.drop_unseen:
        return _noted(graph, note + "kept")
    if keeps_ids:
        return _noted(graph, note + "removed; the names keep their ids (data.drop_unseen)", **kept)
    # Train is read first, so its names have the lowest ids.
    names = graph.vocabulary
    vocabulary = Vocabulary(names.entities[:n_entities], names.relations[:n_relations])
    graph = replace(graph, vocabulary=vocabulary)
    return _noted(graph, note + "removed, as are the names (data.drop_unseen)", **kept)


def _column_notes(graph: Graph, columns: str) -> list[str]:
    """A note if the order of columns looks unusual; a `DataError` if it is certainly wrong.

    It is certain when the relation column has twice as many names as another column and half of
    them are entities too. More names alone is only unusual: a graph of many attributes with few
    values looks like that.
    """
    heads, relations, tails = (np.flatnonzero(np.bincount(column)) for column in graph.train.T)
    release(graph.train)
    fewest, letter = min((len(tails), "t"), (len(heads), "h"))
    if len(relations) < _FEWEST_RELATIONS or len(relations) <= fewest:
        return []
    names = graph.vocabulary.relations
    both = sum(names[relation] in graph.vocabulary.entity_ids for relation in relations)
    likely = shlex.quote(f"data.columns={_swapped(columns, 'hrt'.index(letter))}")
    note = (
        f"read as {columns}, there are {len(relations):,} relations but only {fewest:,} "
        f"{'tails' if letter == 't' else 'heads'}"
    )
    if len(relations) >= 2 * fewest and 2 * both >= len(relations):
        raise DataError(
            f"{graph.name}: {note}, and {both:,} relations are also entities: the columns have "
            f"another order.\nGive their order, most likely `--set {likely}`"
        )
    return [f"{note}; if the columns have another order, add `--set {likely}`"]


def _absent(graph: Graph, settings: Data) -> list[str]:
    """A note if data.keep_relations has names that no relation has."""
    if settings.keep_relations is None:
        return []
    relations = graph.vocabulary.relations
    found = {*relations, *map(last_part, relations)}
    absent = [name for name in listed_names(settings.keep_relations) if name not in found]
    names = ", ".join(map(printable, absent))
    return [f"names in data.keep_relations that no relation has: {names}"] if absent else []


def _swapped(columns: str, other: int) -> str:
    """data.columns with the relation and the head (0) or the tail (2) swapped."""
    if "," not in columns:
        letter = "hrt"[other]
        return columns.translate(str.maketrans("r" + letter, letter + "r"))
    names = list(listed_names(columns))
    names[1], names[other] = names[other], names[1]
    text = io.StringIO()
    csv.writer(text, lineterminator="").writerow(names)
    return text.getvalue()


def _look_alikes(vocabulary: Vocabulary, kind: str, difference: str) -> str | None:
    """A note on unusual names whose normal form is also that of another name."""
    names: Sequence[str] = getattr(vocabulary, kind)
    is_unusual, normal = _LOOK_ALIKES[difference]
    found: list[tuple[int, list[str]]] = []
    # Several passes over many names bound the memory.
    n_parts = len(names) // _NAMES + 1
    for part in range(n_parts):
        groups: dict[str, tuple[int, set[str]]] = {}  # normal form: first index, names
        for start, text in name_texts(names):
            some = text.split("\n") if is_unusual(f"\n{text}\n") else ()
            for index, name in enumerate(some, start):
                if is_unusual(f"\n{name}\n") and hash(form := normal(name)) % n_parts == part:
                    groups.setdefault(form, (index, set()))[1].add(name)
        for name in names if groups else ():
            if name in groups:
                groups[name][1].add(name)
        found += [(index, sorted(group)) for index, group in groups.values() if len(group) > 1]
    if not found:
        return None
    # ascii() because the two would look the same here as well.
    example = " and ".join(ascii(name[:40]) for name in min(found)[1][:2])
    note = f"{kind} that differ only in {difference}, kept apart: {len(found):,}"
    return f"{note}, for example {example}"


def find_duplicates(graph: Graph) -> tuple[dict[str, _Rows], dict[tuple[str, str], int]]:
    """Rows of each split that repeat an earlier row; and how many triples two splits share.

    Triples are compared in groups to bound the memory. Equal triples are in the same group.
    """
    parts = {split: graph.split(split) for split in SPLITS}
    none = np.empty(0, dtype=np.int64)
    repeated: dict[str, list[_Rows]] = {split: [none] for split in SPLITS}
    shared = dict.fromkeys(combinations(SPLITS, 2), 0)
    n_groups = 1 + sum(map(len, parts.values())) // _GROUP
    for group in range(n_groups):
        rows = {split: _rows_of_group(part, group, n_groups) for split, part in parts.items()}
        triples = [parts[split][rows[split]] for split in SPLITS]
        keys = triple_keys(triples, graph.n_entities, graph.n_relations)
        if len(distinct(np.concatenate(keys))) == sum(map(len, keys)):
            continue  # the usual case
        firsts = {}
        for split, split_keys in zip(SPLITS, keys, strict=True):
            first = first_indices(split_keys)
            repeated[split].append(np.delete(rows[split], first))
            firsts[split] = split_keys[first]
        for one, other in shared:
            both = np.intersect1d(firsts[one], firsts[other], assume_unique=True)
            shared[one, other] += len(both)
    return {split: np.sort(np.concatenate(found)) for split, found in repeated.items()}, shared


def _rows_of_group(part: Triples, group: int, n_groups: int) -> _Rows:
    found = [np.empty(0, dtype=np.int64)]
    for start in range(0, len(part), _GROUP):
        mixed = part[start : start + _GROUP].astype(np.uint64) @ _MIX
        rows = np.flatnonzero((mixed >> np.uint64(32)) % np.uint64(n_groups) == group)
        found.append(rows + start)
    return np.concatenate(found)
