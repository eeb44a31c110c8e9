"""Where triples lie: in a folder, in an archive, or in one file."""

from __future__ import annotations

import gzip
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, cast

from allneg.errors import DataError, printable
from allneg.graph.graph import SPLITS

# What reading a packed file raises when it is damaged or cut off.
DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError)

_UNPACKED = 5  # bytes of triples to a packed one, about
_NAMES = {**{split: split for split in SPLITS}, **dict.fromkeys(["validation", "dev"], "valid")}
_SPLIT_FILE = re.compile(rf"({'|'.join(_NAMES)})\.(txt|tsv|csv)(\.gz|\.xz)?")


@dataclass(frozen=True)
class TripleFile:
    """A file of triples that can be opened."""

    where: str  # its name in messages
    separator: str  # between fields: a tab, or a comma in .csv
    open: Callable[[], AbstractContextManager[IO[bytes]]]  # unpacked bytes from the start
    about_bytes: int  # of text; guessed where it is packed


def triple_file(where: str, open_raw: Callable[[], IO[bytes]], size: int) -> TripleFile:
    """A file of `size` bytes, read as the end of its name says: packed or not, .csv or not."""
    separator = "," if re.search(r"\.csv(\.gz|\.xz)?$", where.lower()) else "\t"
    about = size * (_UNPACKED if where.lower().endswith(("gz", "xz")) else 1)
    return TripleFile(where, separator, lambda: unpacked(open_raw, where), about)


@contextmanager
def unpacked(open_raw: Callable[[], IO[bytes]], name: str) -> Iterator[IO[bytes]]:
    """The bytes inside a file whose name may end in gz or xz."""
    # Neither gzip nor lzma closes a file it was handed, so both are closed here.
    with open_raw() as raw:
        if name.lower().endswith("gz"):
            with gzip.open(raw, "rb") as stream:
                yield cast("IO[bytes]", stream)
        elif name.lower().endswith("xz"):
            with lzma.open(raw, "rb") as packed:
                yield cast("IO[bytes]", packed)
        else:
            yield raw


def one_file(path: Path) -> TripleFile:
    return triple_file(str(path), lambda: path.open("rb"), path.stat().st_size)


def folder_files(folder: Traversable, where: str) -> dict[str, TripleFile]:
    """The files of the splits that a folder holds, by split."""
    try:
        inside = list(folder.iterdir())
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror})") from None
    found = {each.name: each for each in inside if each.is_file()}
    if not found and inside:
        names = [each.name for each in inside]
        raise DataError(
            f"{where}: no train file in it, only folders{_some(names)}; name one of them"
        )
    chosen = choose_splits(found, where)
    return {
        split: triple_file(f"{where}/{name}", _opener(found[name]), _size(found[name]))
        for split, name in chosen.items()
    }


def choose_splits(names: Iterable[str], where: str) -> dict[str, str]:
    """Which of a folder's or an archive's names are train, valid and test; train must be there."""
    names = list(names)
    chosen: dict[str, str] = {}
    for name in sorted(names):
        match = _SPLIT_FILE.fullmatch(name.rpartition("/")[2])
        if not match:
            continue
        split = _NAMES[match[1]]
        if split in chosen:
            raise DataError(
                f"{where}: {printable(chosen[split])} and {printable(name)} are both {split}; "
                "keep one of them"
            )
        chosen[split] = name
    if "train" not in chosen:
        raise DataError(
            f"{where}: no train file; it should be called train.txt, train.tsv or train.csv, "
            f"perhaps with .gz or .xz{_some(names)}"
        )
    return {split: chosen[split] for split in SPLITS if split in chosen}


def _size(file: Traversable) -> int:
    # What lies inside a packed package is small.
    return file.stat().st_size if isinstance(file, Path) else 0


def _opener(file: Traversable) -> Callable[[], IO[bytes]]:
    return lambda: file.open("rb")


def refuse_if_empty(split: str, file: TripleFile, count: int) -> None:
    if count == 0 and split in ("train", ""):
        raise DataError(f"{file.where}: no triples in it; train needs at least one")


def _some(names: list[str]) -> str:
    if not names:
        return "; it is empty"
    shown = ", ".join(printable(name) for name in sorted(names)[:3])
    return f"; found {shown}{' and more' if len(names) > 3 else ''}"
