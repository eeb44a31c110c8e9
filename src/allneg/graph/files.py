"""Files of triples: their formats, their compression, and the splits in a folder."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any, TypeAlias

from allneg.errors import DataError, printable
from allneg.graph.graph import SPLITS
from allneg.graph.lines import Block, read_lines
from allneg.recipe import Data

Opener: TypeAlias = Callable[[], IO[bytes]]
Wrapper: TypeAlias = Callable[[IO[bytes]], Any]
# A reader yields the names in a stream: (stream, file name for messages, settings, notes).
Reader: TypeAlias = Callable[[IO[bytes], str, Data, list[str]], Iterator[Block]]

# To add a format, write its reader and add its suffix here.
FORMATS: dict[str, Reader] = {
    ".txt": partial(read_lines, "\t"),
    ".tsv": partial(read_lines, "\t"),
    ".csv": partial(read_lines, ","),
}
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}

# What reading a damaged or incomplete file raises.
DAMAGE = (
    OSError, EOFError, NotImplementedError, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
    tarfile.TarError,
)  # fmt: skip
_RATIO = 5  # bytes of text per compressed byte, roughly
_STEMS = {**{split: split for split in SPLITS}, "validation": "valid", "dev": "valid"}
_SPLIT_FILE = re.compile(
    "({})({})({})?".format(*("|".join(map(re.escape, x)) for x in (_STEMS, FORMATS, COMPRESSIONS)))
)


@dataclass(frozen=True)
class TripleFile:
    """A file of triples that can be opened several times."""

    where: str  # its name in messages
    suffix: str  # a key of FORMATS
    open: Callable[[], AbstractContextManager[IO[bytes]]]  # decompressed
    n_bytes: int  # of text; estimated for compressed files

    @classmethod
    def named(
        cls, where: str, open_raw: Opener, size: int, wrap: Wrapper | None = None
    ) -> TripleFile:
        """A file of `size` bytes. Its name gives its format; an unknown suffix means tabs."""
        name = where.lower()
        plain = name.removesuffix(_compression(name))
        suffix = next((suffix for suffix in FORMATS if plain.endswith(suffix)), ".tsv")
        ratio = 1 if plain == name else _RATIO
        return cls(where, suffix, lambda: decompressed(open_raw, where, wrap), size * ratio)

    @contextmanager
    def stream(self) -> Iterator[IO[bytes]]:
        """The decompressed bytes; damage becomes a `DataError`."""
        try:
            with self.open() as stream:
                yield stream
        except DAMAGE as error:
            if isinstance(error, OSError) and error.errno:
                raise DataError(f"{self.where}: cannot be read ({error.strerror})") from None
            raise DataError(
                f"{self.where}: damaged or cut off ({error}); get the file again"
            ) from None

    def blocks(self, settings: Data, notes: list[str]) -> Iterator[Block]:
        """The names in the file, block by block; `notes` gets what was changed."""
        with self.stream() as stream:
            yield from FORMATS[self.suffix](stream, self.where, settings, notes)

    def sha256(self) -> str:
        """The hash of the decompressed bytes."""
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


def file_sha256(path: Path) -> str:
    """The hash of a file as it is on disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _compression(name: str) -> str:
    return next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), "")


@contextmanager
def decompressed(open_raw: Opener, name: str, wrap: Wrapper | None = None) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz or .xz, then wrapped."""
    suffix = _compression(name.lower())
    # gzip and lzma do not close the file they are given.
    with open_raw() as raw, COMPRESSIONS[suffix](raw, "rb") if suffix else raw as stream:
        yield wrap(stream) if wrap else stream


def folder_files(folder: Traversable, where: str) -> dict[str, TripleFile]:
    """The files of a folder, by split."""
    try:
        entries = {entry.name: entry for entry in folder.iterdir()}
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror})") from None
    files = {name: entry for name, entry in entries.items() if entry.is_file()}
    if entries and not files:
        raise DataError(
            f"{where}: no train file in it, only folders{_examples(entries)}; choose one of them"
        )

    def triple_file(name: str) -> TripleFile:
        file = files[name]
        # Files inside a zipped package have no size, but are small.
        size = file.stat().st_size if isinstance(file, Path) else 0
        return TripleFile.named(f"{where}/{name}", lambda: file.open("rb"), size)

    return {split: triple_file(name) for split, name in choose_splits(files, where).items()}


def choose_splits(names: Iterable[str], where: str) -> dict[str, str]:
    """Which names of a folder or an archive are train, valid and test; train is required."""
    names = sorted(names)
    chosen: dict[str, str] = {}
    for name in names:
        match = _SPLIT_FILE.fullmatch(name.rpartition("/")[2])
        if not match:
            continue
        split = _STEMS[match[1]]
        if split in chosen:
            raise DataError(
                f"{where}: {printable(chosen[split])} and {printable(name)} are both {split}; "
                "keep one of them"
            )
        chosen[split] = name
    if "train" not in chosen:
        raise DataError(
            f"{where}: no train file; name it {' or '.join(f'train{end}' for end in FORMATS)}, "
            f"optionally with {' or '.join(COMPRESSIONS)}{_examples(names)}"
        )
    return {split: chosen[split] for split in SPLITS if split in chosen}


def _examples(names: Iterable[str]) -> str:
    names = sorted(names)
    if not names:
        return "; it is empty"
    shown = ", ".join(printable(name) for name in names[:3])
    return f"; found {shown}{' and more' if len(names) > 3 else ''}"
