"""Text → ids where the names do not fit in memory: they are spilled to the disk and put together.

Names are numbered a chunk at a time, as if each chunk were a graph of its own; a name's number
there, after the names of earlier chunks, is its place. Names are spilled into parts by their hash,
so that all the places of a name are in one part. Each part, small enough for memory, then tells
which places hold a name for the first time, and counting those gives the ids: they follow the
first appearance, as they do in memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.graph.files import TripleFile, refuse_if_empty
from allneg.graph.graph import Triples
from allneg.graph.lines import Ids, named_blocks, numbered
from allneg.graph.mapped import ROWS, MappedNames, append_names, map_triples
from allneg.graph.vocabulary import Vocabulary
from allneg.recipe import Data

_Ids: TypeAlias = npt.NDArray[np.int64]

_CHUNK = 1 << 20  # names in memory before they are spilled, which take about 200 MB
_PARTS = 64


def read_spilled(
    files: Mapping[str, TripleFile], settings: Data, folder: Path
) -> tuple[dict[str, Triples], Vocabulary, list[str]]:
    """Each split's triples, all names, and notes; `folder` is for what lies on the disk.

    The names of relations, which are few, are kept in memory.
    """
    spill, relations, notes = _Spill(folder), Ids(), list[str]()
    paths = {split: folder / f"{split or 'all'}.ids" for split in files}
    for split, file in files.items():
        with paths[split].open("xb") as out:
            for names, links in named_blocks(file, settings, notes):
                part = numbered(names, links, spill.chunk, relations)
                part[:, [0, 2]] += spill.before
                out.write(part.astype("<i8").tobytes())
                if len(spill.chunk) >= _CHUNK:
                    spill.put_by()
            refuse_if_empty(split, file, out.tell())
    spill.put_by()
    first = spill.first_places()
    entities = folder / "entities.txt"
    append_names(entities, compress(MappedNames.open(folder / "names"), _flat(_is_first(first))))
    _turn_into_ids(first, folder / "counts")
    for path in paths.values():
        _renumber(path, first)
    splits = {split: map_triples(path) for split, path in paths.items()}
    return splits, Vocabulary(MappedNames.open(entities), tuple(relations)), notes


class _Spill:
    """The names of all chunks, in order and by parts, as files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunk = Ids()  # the names that are not yet spilled
        self.before = 0  # places of earlier chunks

    def put_by(self) -> None:
        """Spill the chunk, and begin another."""
        names = list(self.chunk)
        append_names(self.folder / "names", names)
        # A hash differs from one process to the next; which part a name is in does not matter.
        part = np.fromiter(map(hash, names), np.int64, len(names)) % _PARTS
        for number in range(_PARTS):
            mine = np.flatnonzero(part == number)
            append_names(self._part(number, "names"), (names[each] for each in mine.tolist()))
            with self._part(number, "places").open("ab") as file:
                file.write((mine + self.before).tobytes())
        self.before += len(names)
        self.chunk = Ids()

    def first_places(self) -> _Ids:
        """Where the name at each place stands for the first time."""
        out = _array(self.folder / "first", self.before)
        for number in range(_PARTS):
            places = np.fromfile(self._part(number, "places"), np.int64)
            names = MappedNames.open(self._part(number, "names"))
            known: dict[str, int] = {}
            # Places ascend, so that the one which is set is the first.
            found = map(known.setdefault, names, places.tolist())
            out[places] = np.fromiter(found, np.int64, len(places))
        return out

    def _part(self, number: int, kind: str) -> Path:
        return self.folder / f"part-{number}.{kind}"


def _is_first(first: _Ids) -> Iterator[npt.NDArray[np.bool_]]:
    """Whether a place is the first of its name, a slice at a time."""
    for start in range(0, len(first), ROWS):
        some = first[start : start + ROWS]
        yield some == np.arange(start, start + len(some))


def _flat(slices: Iterator[npt.NDArray[np.bool_]]) -> Iterator[bool]:
    for some in slices:
        yield from some.tolist()


def _turn_into_ids(first: _Ids, path: Path) -> None:
    """Put a name's id in place of its first place: how many names there were before."""
    counts, before = _array(path, len(first)), 0
    for number, is_first in enumerate(_is_first(first)):
        some = counts[number * ROWS : (number + 1) * ROWS]
        np.cumsum(is_first, out=some)
        some += before - 1
        before = int(some[-1]) + 1
    for start in range(0, len(first), ROWS):
        first[start : start + ROWS] = counts[first[start : start + ROWS]]


def _renumber(path: Path, ids: _Ids) -> None:
    """Put ids in place of the places in a file of triples."""
    if not path.stat().st_size:
        return
    triples = np.memmap(path, dtype="<i8", mode="r+").reshape(-1, 3)
    for start in range(0, len(triples), ROWS):
        some = triples[start : start + ROWS]
        some[:, 0], some[:, 2] = ids[some[:, 0]], ids[some[:, 2]]


def _array(path: Path, length: int) -> _Ids:
    """Numbers on the disk; a file of no bytes cannot be mapped."""
    if not length:
        return np.empty(0, dtype=np.int64)
    return np.memmap(path, dtype=np.int64, mode="w+", shape=(length,))
