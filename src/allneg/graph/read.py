"""Files of triples → a graph. Names become ids in order of first appearance."""

import errno
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from hashlib import blake2b
from itertools import compress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, OutOfMemoryError, UsageError, close_names, printable
from allneg.graph.clean import cleaned
from allneg.graph.datasets import KNOWN_NAMES, PACKAGED, find_dataset
from allneg.graph.files import TripleFile, folder_files, split_files
from allneg.graph.graph import Graph, Triples, Vocabulary
from allneg.graph.lines import Block
from allneg.graph.mapped import MappedNames, append_names, cached_graph, map_triples
from allneg.recipe import Data

_DEFAULTS = Data()
_LARGE = 1 << 28  # bytes of text; larger texts are stored on disk by default
_CHUNK = 1 << 20  # names or triples in memory before they are written to disk
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_Read: TypeAlias = tuple[dict[str, Triples], Vocabulary, list[str]]  # splits, names, notes


def read_graph(source: str | Path, settings: Data = _DEFAULTS) -> Graph:
    """The graph of a known name, a folder, an archive, or one file of triples.

    A folder or an archive contains train, and optionally valid and test, in one of the FORMATS
    of allneg.graph.files. One file is split by `settings`. Names are kept exactly; ids are in the
    order of first appearance, train first. A known name means that dataset; write ./NAME for a
    folder of the same name. The graph's `notes` report what was changed or looks unusual.
    """
    check_source(source)
    try:
        return _read_source(source, settings)
    except MemoryError:
        less = "" if settings.store == "disk" else ", or add `--set data.store=disk`"
        raise OutOfMemoryError(
            f"{source}: out of memory while reading the triples; free some memory{less}"
        ) from None


def check_source(source: object) -> None:
    """Raise a `UsageError` unless `source` is a name or a path."""
    if not isinstance(source, str | os.PathLike):
        raise UsageError(
            f"the data must be the name of a known dataset or a path, not {type(source).__name__}; "
            "write the triples to a file first,\nsuch as "
            "pandas.DataFrame(triples).to_csv('triples.tsv', sep='\\t', header=False, index=False)"
        )


def _read_source(source: str | Path, settings: Data) -> Graph:
    if isinstance(source, str) and source in KNOWN_NAMES:
        if source in PACKAGED:
            return _graph(source, folder_files(PACKAGED[source], source), settings)
        path, notes = find_dataset(source)
        with split_files(path) as files:
            graph = _graph(source, files, settings)
        return replace(graph, notes=(*notes, *graph.notes))
    path = Path(source)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        if isinstance(error, OSError) and error.errno not in _MISSING:
            raise DataError(f"{source}: cannot be read ({error.strerror})") from None
        raise DataError(
            f"{printable(str(source), 200)}: no such file or folder, and no known dataset of that "
            f"name{close_names(str(source), KNOWN_NAMES)}; known: {', '.join(KNOWN_NAMES)}"
        ) from None
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise DataError(f"{path}: neither a file nor a folder")
    if path.suffix == ".toml" and path.is_file():
        raise DataError(f"{path}: TOML is not a format of triples; pass a recipe with --recipe")
    with split_files(path) as files:
        return _graph(path.resolve().name, files, settings)


def _graph(name: str, files: Mapping[str, TripleFile], settings: Data) -> Graph:
    def read(folder: Path | None = None) -> Graph:
        on_disk = folder and read_on_disk(files, settings, folder)
        splits, names, notes = on_disk or read_in_memory(files, settings)
        for split in {"train", ""} & splits.keys():
            if not len(splits[split]):
                raise DataError(
                    f"{files[split].where}: it has no triples; train needs at least one"
                )
        return cleaned(name, splits, names, notes, settings)

    large = sum(file.n_bytes for file in files.values()) >= _LARGE
    if settings.store == "memory" or (settings.store == "auto" and not large):
        return read()
    return cached_graph(name, files, settings, read)


def read_in_memory(files: Mapping[str, TripleFile], settings: Data) -> _Read:
    """The triples of each split, all names, and notes."""
    entities, relations, notes = _Ids(), _Ids(), list[str]()
    splits = {}
    for split, file in files.items():
        parts = [np.empty((0, 3), dtype=np.int64)]
        parts += [_numbered(block, entities, relations) for block in file.blocks(settings, notes)]
        splits[split] = np.concatenate(parts)
    return splits, Vocabulary(tuple(entities), tuple(relations)), notes


def read_on_disk(files: Mapping[str, TripleFile], settings: Data, folder: Path) -> _Read:
    """The same as `read_in_memory`, but entity names and triples are mapped from `folder`.

    Names are numbered chunk by chunk; only a 128-bit hash and an id per entity stay in memory.
    """
    entities, relations, notes = _IdsOnDisk(folder / "entities.txt"), _Ids(), list[str]()
    splits = {}
    for split, file in files.items():
        path = folder / f"{split or 'all'}.ids"
        with path.open("xb") as out:
            chunk, parts = _Ids(), list[Triples]()
            for block in file.blocks(settings, notes):
                parts.append(_numbered(block, chunk, relations))
                if max(len(chunk), sum(map(len, parts))) >= _CHUNK:
                    out.write(entities.renumbered(parts, list(chunk)))
                    chunk, parts = _Ids(), []
            if parts:
                out.write(entities.renumbered(parts, list(chunk)))
        splits[split] = map_triples(path)
    return splits, Vocabulary(MappedNames.open(entities.path), tuple(relations)), notes


class _Ids(dict[str, int]):
    """Ids by name. Looking up a new name gives it the next id."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


class _IdsOnDisk:
    """Ids of names that are in a file, by their hashes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.hashes = np.empty(0, dtype="S16")  # sorted
        self.ids = np.empty(0, dtype=np.int64)  # in the order of `hashes`
        append_names(path, ())

    def renumbered(self, parts: list[Triples], names: list[str]) -> bytes:
        """The triples of a chunk with final ids, as bytes. `names` are those of the chunk."""
        triples, ids = np.concatenate(parts), self._find(names)
        triples[:, [0, 2]] = ids[triples[:, [0, 2]]]
        return triples.astype("<i8").tobytes()

    def _find(self, names: list[str]) -> npt.NDArray[np.int64]:
        """The id of each name. New names are numbered in their order and appended to the file."""
        encoded = (name.encode(errors="surrogatepass") for name in names)
        hashes = np.array([blake2b(name, digest_size=16).digest() for name in encoded], "S16")
        at = np.searchsorted(self.hashes, hashes)
        is_new = np.ones(len(names), dtype=np.bool_)
        inside = at < len(self.hashes)
        is_new[inside] = self.hashes[at[inside]] != hashes[inside]
        ids = len(self.ids) + np.cumsum(is_new) - 1
        ids[~is_new] = self.ids[at[~is_new]]
        append_names(self.path, compress(names, is_new.tolist()))
        order = np.flatnonzero(is_new)[np.argsort(hashes[is_new])]
        self.hashes = np.insert(self.hashes, at[order], hashes[order])
        self.ids = np.insert(self.ids, at[order], ids[order])
        return ids


def _numbered(block: Block, entities: _Ids, relations: _Ids) -> Triples:
    heads, links, tails = block
    # Heads and tails alternate, so that ids follow the order of reading.
    names = [""] * (2 * len(links))
    names[0::2], names[1::2] = heads, tails
    triples = np.empty((len(links), 3), dtype=np.int64)
    triples[:, [0, 2]] = np.fromiter(map(entities.__getitem__, names), np.int64).reshape(-1, 2)
    triples[:, 1] = np.fromiter(map(relations.__getitem__, links), np.int64)
    return triples
