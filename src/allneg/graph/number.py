"""Blocks of names → ids, in order of first appearance.

Names are in a dict, or, for large files where pyarrow is installed, in Arrow's hash tables, which
take a third of the time. The ids are the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, printable
from allneg.graph.blocks import Found, as_list
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

_Ids = npt.NDArray[np.int64]


def read_files(files: Files, settings: Data, folder: Path | None = None) -> Read:
    """All triples as ids. With `folder`, triples and entity names are mapped from there."""
    found = Found()
    if NAMES[0] in files:
        names, read = _given_names(files), _given_ids
    else:
        use_arrow = folder is not None and find_spec("pyarrow") is not None
        kind = _ArrowNames if use_arrow else _DictNames
        names, read = (kind(), kind()), _numbered
    splits, weights = {}, dict[str, list[npt.NDArray[np.float32]]]()
    for split in ("", *SPLITS):
        if split in files:
            weights[split] = []
            triples = read(files[split], names, settings, found, weights[split])
            splits[split] = _stored(triples, folder and folder / f"{split or 'all'}.ids")
            _check_weights(splits[split], weights[split], files[split])
    for split in {"", "train"} & splits.keys():
        if not len(splits[split]):
            where = files[split][0].where
            raise DataError(f"{where}: it has no triples; train needs at least one")
    entities: Sequence[str] = names[0].sequence(folder and folder / "entities.txt")
    vocabulary = Vocabulary(entities, tuple(names[1].sequence(None)))
    found.labels |= read_labels(files["nodes"]) if files.get("nodes") else {}
    given = [weights[split] for split in ("", "train") if weights.get(split)]
    return Read(
        splits=splits,
        names=vocabulary,
        notes=found.notes,
        weights=np.concatenate(given[0]) if given else None,
        labels=_labels(vocabulary, found),
        keeps_ids=NAMES[0] in files,
    )


class _Names(Protocol):
    """Gives ids to names."""

    def add(self, names: Any) -> None:
        """Names, in a list or an Arrow array, to be numbered by the next `flush`."""

    def flush(self) -> _Ids:
        """The ids of the names that were added since the last call."""

    def sequence(self, path: Path | None) -> Sequence[str]:
        """The names by id; with `path`, mapped from there."""


class _DictNames:
    def __init__(self, names: Iterable[str] = ()) -> None:
        self.ids = {name: number for number, name in enumerate(names)}
        self.pending: list[_Ids] = []

    def add(self, names: Any) -> None:
        ids = self.ids
        found = [ids.setdefault(name, len(ids)) for name in as_list(names)]
        self.pending.append(np.array(found, dtype=np.int64))

    def flush(self) -> _Ids:
        ids, self.pending = np.concatenate([np.empty(0, np.int64), *self.pending]), []
        return ids

    def sequence(self, path: Path | None) -> Sequence[str]:
        return tuple(self.ids) if path is None else _mapped(self.ids, path)


class _ArrowNames:
    def __init__(self) -> None:
        import pyarrow as pa

        self.pa = pa
        self.names = pa.array([], pa.large_string())
        self.pending: list[Any] = []

    def add(self, names: Any) -> None:
        self.pending.append(self.pa.array(names, self.pa.large_string()).dictionary_encode())

    def flush(self) -> _Ids:
        pa, none = self.pa, self.pa.array([], self.pa.int32())
        # The names so far come first, so they keep their ids.
        known = pa.DictionaryArray.from_arrays(none, self.names)
        unified = pa.chunked_array([known, *self.pending]).unify_dictionaries()
        self.names, self.pending = unified.chunk(0).dictionary, []
        ids = [chunk.indices.to_numpy() for chunk in unified.chunks]
        return np.concatenate(ids).astype(np.int64)

    def sequence(self, path: Path | None) -> Sequence[str]:
        blocks = (self.names.slice(start, _ROWS) for start in range(0, len(self.names), _ROWS))
        names = (name for block in blocks for name in as_list(block))
        return tuple(names) if path is None else _mapped(names, path)


def _mapped(names: Iterable[str], path: Path) -> Sequence[str]:
    append_names(path, names)
    return MappedNames.open(path)


def _numbered(
    files: Iterable[TripleFile], names: tuple[_Names, _Names], settings: Data, found: Found,
    weights: list[npt.NDArray[np.float32]],
) -> Iterator[Triples]:  # fmt: skip
    """The triples of some files, chunk by chunk."""
    entities, relations = names
    pending = 0
    for file in files:
        for block in file.blocks(settings, found):
            entities.add(_alternating(block.heads, block.tails))
            relations.add(block.relations)
            if block.weights is not None:
                weights.append(block.weights)
            pending += len(block.relations)
            if pending >= _CHUNK:
                yield _triples(entities.flush(), relations.flush())
                pending = 0
    yield _triples(entities.flush(), relations.flush())


def _alternating(heads: Any, tails: Any) -> Any:
    """Heads and tails in turn, so that ids follow the order of reading."""
    if isinstance(heads, list):
        names = [""] * (2 * len(heads))
        names[0::2], names[1::2] = heads, tails
        return names
    import pyarrow as pa

    order = np.arange(2 * len(heads)).reshape(2, -1).T.reshape(-1)
    return pa.concat_arrays([heads, tails]).take(pa.array(order))


def _triples(entities: _Ids, relations: _Ids) -> Triples:
    heads, tails = entities.reshape(-1, 2).T
    return np.stack([heads, relations, tails], axis=1)


def _stored(chunks: Iterable[Triples], path: Path | None) -> Triples:
    """All chunks as one array, which is mapped from `path` if there is one."""
    if path is None:
        return np.concatenate([np.empty((0, 3), dtype=np.int64), *chunks])
    with path.open("xb") as out:
        for chunk in chunks:
            out.write(chunk.astype("<i8").tobytes())
    return map_triples(path)


def _check_weights(
    triples: Triples, weights: Sequence[npt.NDArray[np.float32]], files: Sequence[TripleFile]
) -> None:
    if weights and sum(map(len, weights)) != len(triples):
        where = files[-1].where
        raise DataError(f"{where}: some files have weights and others have none; add them to all")


def _given_names(files: Files) -> tuple[_Names, _Names]:
    """The names of ids that were computed elsewhere."""
    found = []
    for kind in NAMES:
        (file,) = files[kind]
        with file.stream() as stream:
            found.append(_DictNames(read_names(stream, file.suffix, file.where)))
    return found[0], found[1]


def _given_ids(
    files: Iterable[TripleFile], names: tuple[_Names, _Names], settings: Data, found: Found,
    weights: list[npt.NDArray[np.float32]],
) -> Iterator[Triples]:  # fmt: skip
    """The triples of files of ids, as they are."""
    n_entities, n_relations = (len(kind.sequence(None)) for kind in names)
    for file in files:
        with file.stream() as stream:
            for triples, some in read_ids(stream, file.suffix, file.where, settings, found):
                outside = (triples < 0) | (triples >= (n_entities, n_relations, n_entities))
                if outside.any():
                    wrong = triples[outside.any(axis=1)][0].tolist()
                    raise DataError(
                        f"{file.where}: the triple {printable(str(wrong))} has an id without a name"
                    )
                weights += [] if some is None else [some]
                yield triples


def _labels(names: Vocabulary, found: Found) -> dict[str, str]:
    """The labels of the names of a graph; shortened IRIs where there is no other."""
    if not found.labels and not found.has_iris:
        return {}
    labels: dict[str, str] = {}
    for kind in (names.entities, names.relations):
        labels |= short_names(kind, found.prefixes)
        labels |= {name: found.labels[name] for name in kind if name in found.labels}
    return labels
