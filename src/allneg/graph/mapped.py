"""Large graphs on disk: names and triples are read from text once, then mapped into memory.

The folder of a graph in the cache is named after its content and the settings of reading. It
appears complete or not at all. The SHA-256 of its files is checked on every use.
"""

import hashlib
import json
import mmap
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Self, overload

import numpy as np
import numpy.typing as npt

from allneg.errors import DataError, RecipeError
from allneg.graph.files import Files, file_sha256
from allneg.graph.graph import SPLITS, Graph, Triples, Vocabulary
from allneg.paths import TEMPORARY, cache_folder, complete_folder, locked, remove, sync
from allneg.recipe import Data

ROWS = 1 << 18  # triples or names per step
_BYTES = 1 << 24  # of text per step
_FORMAT_VERSION = 5
_MANIFEST = "manifest.json"
_NAMES = ("entities.txt", "relations.txt")
_IDS = tuple(f"{split}.ids" for split in SPLITS)
_WEIGHTS, _LABELS = "weights.f32", "labels.tsv"  # empty without weights, without labels
_FILES = (*_NAMES, *_IDS, _WEIGHTS, _LABELS)


class MappedNames(Sequence[str]):
    """The lines of a UTF-8 file. Only a line feed ends a name."""

    def __init__(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends  # (n + 1,): -1, then the position of the line feed of each name

    @classmethod
    def open(cls, path: Path) -> Self:
        if not path.stat().st_size:
            return cls(np.empty(0, dtype=np.uint8), np.full(1, -1))
        text = np.memmap(path, dtype=np.uint8, mode="r")
        starts = range(0, len(text), _BYTES)
        ends = [
            np.flatnonzero(text[start : start + _BYTES] == ord("\n")) + start for start in starts
        ]
        return cls(text, np.concatenate([np.full(1, -1), *ends]))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[str]: ...
    def __getitem__(self, index: int | slice) -> str | Sequence[str]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return tuple(self[number] for number in range(start, stop, step))
            return MappedNames(self._text, self._ends[start : max(start, stop) + 1])
        number = range(len(self))[index]  # an IndexError beyond the ends
        return self._read(number, number + 1)

    def __iter__(self) -> Iterator[str]:
        for _, text in self.texts():
            yield from text.split("\n")

    def texts(self) -> Iterator[tuple[int, str]]:
        """The names as texts, joined by line feeds; and the index of the first of each."""
        for start in range(0, len(self), ROWS):
            yield start, self._read(start, min(start + ROWS, len(self)))

    def _read(self, start: int, stop: int) -> str:
        """The names from `start` to `stop`, joined by line feeds."""
        text = self._text[self._ends[start] + 1 : self._ends[stop]]
        return text.tobytes().decode(errors="surrogatepass")

    def lines(self) -> npt.NDArray[np.uint8]:
        """The bytes of all names, each followed by a line feed."""
        return self._text[self._ends[0] + 1 : self._ends[-1] + 1]


def name_texts(names: Sequence[str]) -> Iterator[tuple[int, str]]:
    """The names as blocks of text, joined by line feeds; and the index of the first of each."""
    if isinstance(names, MappedNames):
        yield from names.texts()
        return
    for start in range(0, len(names), ROWS):
        yield start, "\n".join(names[start : start + ROWS])


def append_names(path: Path, names: Iterable[str]) -> None:
    """Append names to a file, which is created if missing."""
    with path.open("ab") as file:
        if isinstance(names, MappedNames):
            file.write(names.lines().data)
            return
        rest = iter(names)
        while some := list(islice(rest, ROWS)):
            file.write("".join(name + "\n" for name in some).encode(errors="surrogatepass"))


def label_lines(labels: Mapping[str, str]) -> Iterator[str]:
    """Lines of name, tab, label; a label has no tab and no line feed."""
    return (f"{name}\t{label}" for name, label in labels.items())


class LabelFile(Mapping[str, str]):
    """The labels in a file of such lines, which is read when it is first used."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _labels(self) -> dict[str, str]:
        lines = (line.partition("\t") for line in MappedNames.open(self._path))
        return {name: label for name, _, label in lines}

    def __getitem__(self, name: str) -> str:
        return self._labels[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._labels)

    def __len__(self) -> int:
        return len(self._labels)


def map_triples(path: Path) -> Triples:
    """The triples of a file: (n, 3). Writing to the array leaves the file unchanged."""
    if not path.stat().st_size:
        return np.empty((0, 3), dtype=np.int64)
    return np.memmap(path, dtype="<i8", mode="c").reshape(-1, 3)


def release(triples: Triples) -> None:
    """Forget the pages of mapped triples until they are used again."""
    mapping = getattr(triples, "_mmap", None)
    if mapping is not None and hasattr(mmap, "MADV_DONTNEED"):  # not on Windows
        mapping.madvise(mmap.MADV_DONTNEED)


def write_triples(path: Path, triples: Triples, skip: npt.ArrayLike = ()) -> None:
    """Write little-endian int64, row by row, except the sorted rows `skip`."""
    skipped = np.asarray(skip, dtype=np.int64)
    with path.open("xb") as file:
        for start in range(0, len(triples), ROWS):
            first, last = np.searchsorted(skipped, (start, start + ROWS))
            kept = np.delete(triples[start : start + ROWS], skipped[first:last] - start, axis=0)
            file.write(kept.astype("<i8").tobytes())
    release(triples)


def without_rows(triples: Triples, rows: npt.NDArray[np.int64]) -> Triples:
    """The triples except those at the sorted indices `rows`. Mapped triples stay on disk."""
    if not isinstance(triples, np.memmap):
        return np.delete(triples, rows, axis=0)
    path = Path(str(triples.filename)).with_suffix(".unique")
    write_triples(path, triples, rows)
    return map_triples(path)


def cached_graph(name: str, files: Files, settings: Data, read: Callable[[Path], Graph]) -> Graph:
    """The graph of these files, mapped from the cache; one process makes it by `read`."""
    try:
        graphs = cache_folder() / "graphs"
    except RecipeError as error:
        raise RecipeError(f"{error}, or read into memory with `--set data.store=memory`") from None
    target = graphs / _key(name, files, settings)
    reason = "" if settings.store == "disk" else "a large text, so "
    notes = [f"{name}: {reason}its ids are stored in {target} and mapped from there (data.store)"]
    found = _load(target)
    if isinstance(found, str):
        if os.path.lexists(target):
            notes.append(f"{target}: damaged ({found}), so the text was read again")
        with locked(graphs, ".lock"):
            for leftover in graphs.glob(f"{TEMPORARY}*"):  # of a killed process
                remove(leftover)
            found = _load(target)  # another process may have finished while this one waited
            if isinstance(found, str):
                _make(target, read, lambda: _key(name, files, settings))
                found = _load(target)
    if isinstance(found, str):
        raise DataError(f"{target}: damaged again right after it was written ({found})")
    return replace(found, notes=(*notes, *found.notes))


def _key(name: str, files: Files, settings: Data) -> str:
    """A hash of the text and of how it is read."""
    options = asdict(settings)
    del options["name"], options["store"]
    # Notes contain file names, so the same text under another path is another graph.
    texts = [
        (split, file.where, file.suffix, file.sha256())
        for split, parts in files.items()
        for file in parts
    ]
    content = json.dumps([_FORMAT_VERSION, name, texts, options], sort_keys=True)
    return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def _make(target: Path, read: Callable[[Path], Graph], key: Callable[[], str]) -> None:
    """Read the text and move the finished folder to `target`, or leave nothing."""
    with complete_folder(target) as folder:
        (folder / "work").mkdir()
        _write(folder, read(folder / "work"), target.name)
        if key() != target.name:
            raise DataError(f"{target}: the text changed while it was read; try again")
        remove(folder / "work")


def _write(folder: Path, graph: Graph, key: str) -> None:
    append_names(folder / _NAMES[0], graph.vocabulary.entities)
    append_names(folder / _NAMES[1], graph.vocabulary.relations)
    for file, split in zip(_IDS, SPLITS, strict=True):
        write_triples(folder / file, graph.split(split))
    weights = np.empty(0) if graph.weights is None else graph.weights
    (folder / _WEIGHTS).write_bytes(weights.astype("<f4").tobytes())
    append_names(folder / _LABELS, label_lines(graph.labels))
    manifest = {
        "format_version": _FORMAT_VERSION,
        "key": key,
        "name": graph.name,
        "notes": graph.notes,
        "sha256": {file: file_sha256(folder / file) for file in _FILES},
    }
    (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
    for file in (*_FILES, _MANIFEST, "."):
        sync(folder / file)


def _load(folder: Path) -> Graph | str:
    """The graph in a folder, or what is wrong with the folder."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_bytes())
        if manifest["format_version"] != _FORMAT_VERSION or manifest["key"] != folder.name:
            return f"{_MANIFEST} is of another graph or version"
        for file in _FILES:
            if manifest["sha256"][file] != file_sha256(folder / file):
                return f"{file} has changed"
        entities, relations = (MappedNames.open(folder / file) for file in _NAMES)
        train, valid, test = (map_triples(folder / file) for file in _IDS)
        vocabulary, notes = Vocabulary(entities, tuple(relations)), tuple(manifest["notes"])
        labels = LabelFile(folder / _LABELS)
        weights = np.fromfile(folder / _WEIGHTS, dtype="<f4").astype(np.float32, copy=False)
        given = weights if len(weights) else None
        return Graph(manifest["name"], vocabulary, train, valid, test, notes, labels, given)
    except OSError as error:
        return f"{Path(error.filename or folder).name}: {error.strerror}"
    except (ValueError, TypeError, KeyError, RecursionError):
        return f"{_MANIFEST} is not valid"
