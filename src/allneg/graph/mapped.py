"""Names and triples that stay on disk and are mapped into memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import overload

import numpy as np
import numpy.typing as npt

from allneg.graph.graph import Triples

ROWS = 1 << 20  # triples or names per step
_BYTES = 1 << 24  # of text per step


class MappedNames(Sequence[str]):
    """The lines of a UTF-8 file. Only a line feed ends a name."""

    def __init__(self, text: npt.NDArray[np.uint8], ends: npt.NDArray[np.int64]) -> None:
        self._text = text
        self._ends = ends  # (n + 1,): -1, then the position of the line feed of each name

    @classmethod
    def open(cls, path: Path) -> MappedNames:
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
        for start in range(0, len(self), ROWS):
            yield from self._read(start, min(start + ROWS, len(self))).split("\n")

    def _read(self, start: int, stop: int) -> str:
        """The names from `start` to `stop`, joined by line feeds."""
        text = self._text[self._ends[start] + 1 : self._ends[stop]]
        return text.tobytes().decode(errors="surrogatepass")


def append_names(path: Path, names: Iterable[str]) -> None:
    """Append names to a file, which is created if missing."""
    rest = iter(names)
    with path.open("ab") as file:
        while some := list(islice(rest, ROWS)):
            file.write("".join(name + "\n" for name in some).encode(errors="surrogatepass"))


def map_triples(path: Path) -> Triples:
    """The triples of a file that `write_triples` made: (n, 3).

    Writing to the array copies the page and leaves the file unchanged.
    """
    if not path.stat().st_size:
        return np.empty((0, 3), dtype=np.int64)
    return np.memmap(path, dtype="<i8", mode="c").reshape(-1, 3)


def write_triples(path: Path, triples: Triples, skip: npt.ArrayLike = ()) -> None:
    """Write little-endian int64, row by row, except the sorted rows `skip`."""
    skipped = np.asarray(skip, dtype=np.int64)
    with path.open("xb") as file:
        for start in range(0, len(triples), ROWS):
            first, last = np.searchsorted(skipped, (start, start + ROWS))
            kept = np.delete(triples[start : start + ROWS], skipped[first:last] - start, axis=0)
            file.write(kept.astype("<i8").tobytes())


def without_rows(triples: Triples, rows: npt.NDArray[np.int64]) -> Triples:
    """The triples except those at the sorted indices `rows`. Mapped triples stay on disk."""
    if not isinstance(triples, np.memmap):
        return np.delete(triples, rows, axis=0)
    path = Path(str(triples.filename)).with_suffix(".unique")
    write_triples(path, triples, rows)
    return map_triples(path)
