"""Blocks of names → ids, in order of first appearance.

Names are in a dict, or, for large files where pyarrow is installed, in Arrow's hash tables, which
take a third of the time. The ids are the same.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from itertools import count as counter
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, printable
from allneg.graph.blocks import Column, Found, as_list
from allneg.graph.clean import Read
from allneg.graph.files import NAMES, Files, TripleFile
from allneg.graph.graph import SPLITS, Triples, Vocabulary
from allneg.graph.mapped import MappedNames, append_names, map_triples
from allneg.graph.neo4j import read_labels
from allneg.graph.rdf import short_names
from allneg.graph.tables import read_ids, read_names
from allneg.recipe import Data

_CHUNK = 1 << 22  # triples that are numbered together
_ROWS = 1 << 20  # names per step

_Ids: TypeAlias = npt.NDArray[np.int64]
_Weights: TypeAlias = npt.NDArray[np.float32]
_File: TypeAlias = tuple[str, TripleFile]  # with its split
_Chunk: TypeAlias = tuple[str, Triples, _Weights | None]  # of a split


def read_files(files: Files, settings: Data, folder: Path | None = None) -> Read:
    """All triples as ids. With `folder`, triples and entity names are mapped from there."""
    found, has_ids = Found(), NAMES[0] in files
    parts = [(split, file) for split in ("", *SPLITS) for file in files.get(split, ())]
    names: tuple[_Names, _Names]
    if has_ids:
        names = _given_names(files)
        chunks = _given_ids(parts, names, settings, found)
    else:
        use_arrow = folder is not None and find_spec("pyarrow") is not None
        kind = _ArrowNames if use_arrow else _DictNames
        names = kind(), kind()
        chunks = _numbered(parts, names, settings, found)
    splits, weights = _stored(chunks, [split for split, _ in parts], folder)
    for split in {"", "train"} & splits.keys():
        if not len(splits[split]):
            where = files[split][0].where
            kept = "" if settings.keep_relations is None else " of data.keep_relations"
            raise DataError(f"{where}: it has no triples{kept}; give at least one")
    entities: Sequence[str] = names[0].sequence(folder and folder / "entities.txt")
    vocabulary = Vocabulary(entities, tuple(names[1].sequence(None)))
    found.labels |= read_labels(files["nodes"]) if files.get("nodes") else {}
    return Read(
        splits=splits,
        names=vocabulary,
        notes=found.notes,
        weights=_checked_weights(weights, splits, files),
        labels=_labels(vocabulary, found),
        keeps_ids=has_ids,
    )


class _Names(Protocol):
    """Gives ids to names."""

    def add(self, *columns: Any) -> None:
        """Names of some columns, line by line, to be numbered by the next `flush`."""

    def flush(self) -> _Ids:
        """The ids of the names that were added since the last call."""

    def sequence(self, path: Path | None) -> Sequence[str]:
        """The names by id; with `path`, mapped from there."""


class _DictNames:
    def __init__(self, names: Iterable[str] = ()) -> None:
        ids = {name: number for number, name in enumerate(names)}
        self.ids: dict[str, int] = defaultdict(counter(len(ids)).__next__, ids)  # the next new one
        self.pending: list[_Ids] = []

    def add(self, *columns: Any) -> None:
        lists = [as_list(column) for column in columns]
        names = [""] * (len(lists) * len(lists[0]))
        for number, some in enumerate(lists):
            names[number :: len(lists)] = some
        found = map(self.ids.__getitem__, names)
        self.pending.append(np.fromiter(found, np.int64, len(names)))

    def flush(self) -> _Ids:
        ids, self.pending = np.concatenate([np.empty(0, np.int64), *self.pending]), []
        return ids

    def sequence(self, path: Path | None) -> Sequence[str]:
        if path is None:
            return tuple(self.ids)
        append_names(path, self.ids)
        return MappedNames.open(path)


class _ArrowNames:
    def __init__(self) -> None:
        import pyarrow as pa

        self.pa = pa
        self.names = pa.array([], pa.large_string())
        self.pending: list[Any] = []

    def add(self, *columns: Any) -> None:
        pa = self.pa
        if isinstance(columns[0], Column):
            names = columns[0].fields.alternating([column.number for column in columns])
        else:
            arrays = [pa.array(column, pa.large_string()) for column in columns]
            n = len(arrays[0])
            order = np.arange(len(arrays) * n).reshape(len(arrays), n).T.reshape(-1)
            names = pa.concat_arrays(arrays).take(pa.array(order))
        self.pending.append(names)

    def flush(self) -> _Ids:
        # The names so far come first, so they keep their ids.
        n_before = len(self.names)
        encoded = self.pa.chunked_array([self.names, *self.pending]).dictionary_encode()
        ids = [np.empty(0, np.int32), *(chunk.indices.to_numpy() for chunk in encoded.chunks)]
        if encoded.num_chunks:
            self.names = encoded.chunk(encoded.num_chunks - 1).dictionary
        self.pending = []
        return np.concatenate(ids)[n_before:].astype(np.int64)

    def sequence(self, path: Path | None) -> Sequence[str]:
        if path is None:
            return tuple(as_list(self.names))
        with path.open("xb") as file:
            for start in range(0, len(self.names), _ROWS):
                block = self.names.slice(start, _ROWS)
                ends = np.frombuffer(block.buffers()[1], np.int64)[start:][: len(block) + 1]
                text = np.frombuffer(block.buffers()[2] or b"", np.uint8)[ends[0] : ends[-1]]
                file.write(np.insert(text, ends[1:] - ends[0], ord("\n")).data)
        self.names = self.pa.array([], self.pa.large_string())
        self.pa.default_memory_pool().release_unused()
        return MappedNames.open(path)


def _numbered(
    files: Iterable[_File], names: tuple[_Names, _Names], settings: Data, found: Found
) -> Iterator[_Chunk]:
    """The triples of some files, chunk by chunk."""
    entities, relations = names
    pending: list[tuple[str, int, _Weights | None]] = []  # split, triples, weights

    def flush() -> Iterator[_Chunk]:
        heads, tails = entities.flush().reshape(-1, 2).T
        triples, start = np.stack([heads, relations.flush(), tails], axis=1), 0
        for split, count, weights in pending:
            yield split, triples[start : start + count], weights
            start += count
        pending.clear()

    for split, file in files:
        for block in file.blocks(settings, found):
            entities.add(block.heads, block.tails)
            relations.add(block.relations)
            pending.append((split, block.n_triples, block.weights))
            if sum(count for _, count, _ in pending) >= _CHUNK:
                yield from flush()
    yield from flush()


def _stored(
    chunks: Iterable[_Chunk], splits: Sequence[str], folder: Path | None
) -> tuple[dict[str, Triples], dict[str, list[_Weights]]]:
    """The triples of each split, mapped from `folder` if there is one; and their weights."""
    triples: dict[str, list[Triples]] = {split: [] for split in splits}
    weights: dict[str, list[_Weights]] = {split: [] for split in splits}
    with ExitStack() as stack:
        paths = {split: folder / f"{split or 'all'}.ids" for split in splits} if folder else {}
        out = {split: stack.enter_context(path.open("xb")) for split, path in paths.items()}
        for split, some, of_some in chunks:
            if folder:
                out[split].write(some.astype("<i8").tobytes())
            else:
                triples[split].append(some)
            weights[split] += [] if of_some is None else [of_some]
    if folder:
        return {split: map_triples(path) for split, path in paths.items()}, weights
    empty = np.empty((0, 3), dtype=np.int64)
    return {split: np.concatenate([empty, *some]) for split, some in triples.items()}, weights


def _checked_weights(
    weights: dict[str, list[_Weights]], splits: Mapping[str, Triples], files: Files
) -> _Weights | None:
    """The weights of train, or of the triples that are to be split."""
    split = "" if "" in splits else "train"
    if not weights.get(split):
        return None
    found = np.concatenate(weights[split])
    if len(found) != len(splits[split]):
        where = files[split][-1].where
        raise DataError(f"{where}: some files have weights and others have none; add them to all")
    return found


def _given_names(files: Files) -> tuple[_Names, _Names]:
    """The names of ids that were computed elsewhere."""
    found = []
    for kind in NAMES:
        (file,) = files[kind]
        with file.stream() as stream:
            found.append(_DictNames(read_names(stream, file.suffix, file.where)))
    return found[0], found[1]


def _given_ids(
    files: Iterable[_File], names: tuple[_Names, _Names], settings: Data, found: Found
) -> Iterator[_Chunk]:
    """The triples of files of ids, as they are."""
    n_entities, n_relations = (len(kind.sequence(None)) for kind in names)
    for split, file in files:
        with file.stream() as stream:
            for triples, weights in read_ids(stream, file.suffix, file.where, settings, found):
                outside = (triples < 0) | (triples >= (n_entities, n_relations, n_entities))
                if outside.any():
                    wrong = triples[outside.any(axis=1)][0].tolist()
                    raise DataError(
                        f"{file.where}: the triple {printable(str(wrong))} has an id without a name"
                    )
                yield split, triples, weights


def _labels(names: Vocabulary, found: Found) -> dict[str, str]:
    """The labels of the names of a graph; shortened IRIs where there is no other."""
    if not found.labels and not found.has_iris:
        return {}
    labels: dict[str, str] = {}
    for kind in (names.entities, names.relations):
        labels |= short_names(kind, found.prefixes)
        labels |= {name: found.labels[name] for name in kind if name in found.labels}
    return labels
