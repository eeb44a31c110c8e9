"""Names → ids, in memory or on disk. Ids follow the order of first appearance either way.

On disk, names are numbered chunk by chunk, as if each chunk were a graph of its own. A name's
slot is its number within its chunk plus the number of slots of earlier chunks. Names are spilled
into parts by hash, so all slots of a name are in one part. A part fits in memory, and gives the
first slot of each of its names. Counting first slots gives the ids.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import compress
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from allneg.graph.files import TripleFile, refuse_if_empty
from allneg.graph.graph import Triples
from allneg.graph.lines import Block
from allneg.graph.mapped import ROWS, MappedNames, append_names, map_triples
from allneg.graph.vocabulary import Vocabulary
from allneg.recipe import Data

_Numbers: TypeAlias = npt.NDArray[np.int64]
_Read: TypeAlias = tuple[dict[str, Triples], Vocabulary, list[str]]  # splits, names, notes

_CHUNK = 1 << 20  # names in memory before they are spilled; they take about 200 MB
_PARTS = 64


class _Ids(dict[str, int]):
    """Ids by name. Looking up a new name gives it the next id."""

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self)
        return number


def read_in_memory(files: Mapping[str, TripleFile], settings: Data) -> _Read:
    """The triples of each split, all names, and notes."""
    entities, relations = _Ids(), _Ids()
    splits: dict[str, Triples] = {}
    notes: list[str] = []
    for split, file in files.items():
        parts = [np.empty((0, 3), dtype=np.int64)]
        parts += [_numbered(block, entities, relations) for block in file.blocks(settings, notes)]
        splits[split] = np.concatenate(parts)
        refuse_if_empty(split, file, len(splits[split]))
    return splits, Vocabulary(tuple(entities), tuple(relations)), notes


def read_on_disk(files: Mapping[str, TripleFile], settings: Data, folder: Path) -> _Read:
    """The same as `read_in_memory`, but entity names and triples are mapped from `folder`.

    Relation names are few and stay in memory.
    """
    spill, relations, notes = _Spill(folder), _Ids(), list[str]()
    paths = {split: folder / f"{split or 'all'}.ids" for split in files}
    for split, file in files.items():
        with paths[split].open("xb") as out:
            for block in file.blocks(settings, notes):
                triples = _numbered(block, spill.chunk, relations)
                triples[:, [0, 2]] += spill.n_slots
                out.write(triples.astype("<i8").tobytes())
                if len(spill.chunk) >= _CHUNK:
                    spill.flush()
            refuse_if_empty(split, file, out.tell())
    spill.flush()
    ids = spill.ids(folder / "entities.txt")
    for path in paths.values():
        _renumber(path, ids)
    splits = {split: map_triples(path) for split, path in paths.items()}
    entities = MappedNames.open(folder / "entities.txt")
    return splits, Vocabulary(entities, tuple(relations)), notes


def _numbered(block: Block, entities: _Ids, relations: _Ids) -> Triples:
    heads, links, tails = block
    # Heads and tails alternate, so that ids follow the order of reading.
    names = [""] * (2 * len(links))
    names[0::2], names[1::2] = heads, tails
    triples = np.empty((len(links), 3), dtype=np.int64)
    triples[:, [0, 2]] = np.fromiter(map(entities.__getitem__, names), np.int64).reshape(-1, 2)
    triples[:, 1] = np.fromiter(map(relations.__getitem__, links), np.int64)
    return triples


class _Spill:
    """The names of all chunks as files: in order, and in parts by hash."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.chunk = _Ids()  # names that are not spilled yet
        self.n_slots = 0  # of spilled names

    def flush(self) -> None:
        """Spill the chunk and start another."""
        names = list(self.chunk)
        append_names(self.folder / "names", names)
        # Hashes differ between processes, but any assignment to parts works.
        part = np.fromiter(map(hash, names), np.int64, len(names)) % _PARTS
        for number in range(_PARTS):
            mine = np.flatnonzero(part == number)
            append_names(self._part(number, "names"), (names[index] for index in mine.tolist()))
            with self._part(number, "slots").open("ab") as file:
                file.write((mine + self.n_slots).tobytes())
        self.n_slots += len(names)
        self.chunk = _Ids()

    def ids(self, unique_names: Path) -> _Numbers:
        """The id of the name in each slot. Writes the name of each id to `unique_names`."""
        first, names = self._first_slots(), MappedNames.open(self.folder / "names")
        ids, n_ids = self._array("ids"), 0
        append_names(unique_names, ())
        for start in range(0, self.n_slots, ROWS):
            rows = slice(start, start + ROWS)
            is_first = first[rows] == np.arange(start, start + len(first[rows]))
            append_names(unique_names, compress(names[rows], is_first.tolist()))
            ids[rows][is_first] = np.arange(n_ids, n_ids + is_first.sum())
            n_ids += int(is_first.sum())
            ids[rows] = ids[first[rows]]  # first slots are never later, so they have ids
        return ids

    def _first_slots(self) -> _Numbers:
        """The first slot with the same name, for each slot."""
        first = self._array("first")
        for number in range(_PARTS):
            slots = np.fromfile(self._part(number, "slots"), np.int64)
            names = MappedNames.open(self._part(number, "names"))
            known: dict[str, int] = {}
            # Slots ascend, so setdefault keeps the first.
            found = map(known.setdefault, names, slots.tolist())
            first[slots] = np.fromiter(found, np.int64, len(slots))
        return first

    def _array(self, name: str) -> _Numbers:
        """One number per slot, on disk. An empty file cannot be mapped."""
        if not self.n_slots:
            return np.empty(0, dtype=np.int64)
        return np.memmap(self.folder / name, dtype=np.int64, mode="w+", shape=(self.n_slots,))

    def _part(self, number: int, kind: str) -> Path:
        return self.folder / f"part-{number}.{kind}"


def _renumber(path: Path, ids: _Numbers) -> None:
    """Replace the slots in a file of triples by ids."""
    if not path.stat().st_size:
        return
    triples = np.memmap(path, dtype="<i8", mode="r+").reshape(-1, 3)
    for start in range(0, len(triples), ROWS):
        rows = triples[start : start + ROWS]
        rows[:, [0, 2]] = ids[rows[:, [0, 2]]]
