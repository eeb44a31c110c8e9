"""Names and triples that stay on the disk, and are read where somebody looks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import Triples

ROWS = 1 << 20  # triples or names gone through at once
_BYTES = 1 << 24  # of text
_LINE_FEED = ord("\n")


class MappedNames(Sequence[str]):
    """The lines of a UTF-8 file. Only a line feed ends a name."""

    def __init__(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends  # (n + 1,): of the line before, of the first name, of the second, …

    @classmethod
    def open(cls, path: Path) -> MappedNames:
        if not path.stat().st_size:
            return cls(np.empty(0, dtype=np.uint8), np.full(1, -1))
        text = np.memmap(path, dtype=np.uint8, mode="r")
        starts = range(0, len(text), _BYTES)
        ends = [np.flatnonzero(text[at : at + _BYTES] == _LINE_FEED) + at for at in starts]
        return cls(text, np.concatenate([np.full(1, -1), *ends]))

    def __len__(self) -> int:
        return len(self._ends) - 1

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[str]: ...
    def __getitem__(self, place: int | slice) -> str | Sequence[str]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            if step != 1:
                return tuple(self[each] for each in range(start, stop, step))
            return MappedNames(self._text, self._ends[start : max(start, stop) + 1])
        if place < 0:
            place += len(self)
        if not 0 <= place < len(self):
            raise IndexError(place)
        return self._read(place, place + 1)

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), ROWS):
            yield from self._read(start, min(start + ROWS, len(self))).split("\n")

    def _read(self, start: int, stop: int) -> str:
        """Names `start` to `stop`, with line feeds between."""
        some = self._text[self._ends[start] + 1 : self._ends[stop]]
        return some.tobytes().decode(errors="surrogatepass")


def append_names(path: Path, names: Iterable[str]) -> None:
    """Write names at the end of a file, which is made where there is none."""
    rest = iter(names)
    with path.open("ab") as file:
        while some := list(islice(rest, ROWS)):
            file.write("".join(name + "\n" for name in some).encode(errors="surrogatepass"))


def map_triples(path: Path) -> Triples:
    """The triples of a file that `write_triples` made: (n, 3).

    Somebody who writes into them gets a page of his own; the file stays as it is.
    """
    if not path.stat().st_size:
        return np.empty((0, 3), dtype=np.int64)
    return np.memmap(path, dtype="<i8", mode="c").reshape(-1, 3)


def write_triples(path: Path, triples: Triples) -> None:
    """Little-endian int64, row by row."""
    with path.open("xb") as file:
        for start in range(0, len(triples), ROWS):
            file.write(triples[start : start + ROWS].astype("<i8").tobytes())


def without_rows(triples: Triples, places: npt.NDArray[np.int64]) -> Triples:
    """The triples but those at `places`, which are sorted; on the disk where they lie there."""
    if not isinstance(triples, np.memmap):
        return np.delete(triples, places, axis=0)
    assert triples.filename is not None
    path = Path(triples.filename).with_suffix(".fewer")
    with path.open("xb") as file:
        for start in range(0, len(triples), ROWS):
            first, last = np.searchsorted(places, (start, start + ROWS))
            some = np.delete(triples[start : start + ROWS], places[first:last] - start, axis=0)
            file.write(some.tobytes())
    return map_triples(path)
