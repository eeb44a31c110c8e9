"""Files of triples: formats, compression, and the splits in a folder or an archive.

Archives are read without extracting them to disk. All members are checked before any is read. One
dangerous member (a path that leads outside, a link, a device, far too many bytes) refuses the
whole archive.
"""

import errno
import gzip
import hashlib
import io
import lzma
import math
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any, Self, TypeAlias, cast

from allneg.errors import DataError, printable
from allneg.graph.blocks import Block, Found, keep_relations
from allneg.graph.graph import SPLITS
from allneg.graph.lines import read_json_lines, read_lines
from allneg.graph.neo4j import neo4j_files
from allneg.graph.rdf import read_n_triples, read_rdf
from allneg.graph.tables import read_feather, read_parquet
from allneg.recipe import Data

Opener: TypeAlias = Callable[[], IO[bytes]]
Wrapper: TypeAlias = Callable[[IO[bytes]], Any]
# A reader yields the names in a stream; `Found` gets what else it finds:
# (stream, file name for messages, settings, found).
Reader: TypeAlias = Callable[[IO[bytes], str, Data, Found], Iterator[Block]]
# A member of an archive: name, size, reason to refuse it, how to open it (None for a folder).
_Member: TypeAlias = tuple[str, int, str | None, Opener | None]

# To add a format, write its reader and add its suffix here.
FORMATS: dict[str, Reader] = {
    ".txt": partial(read_lines, "\t"),
    ".tsv": partial(read_lines, "\t"),
    ".csv": partial(read_lines, ","),
    ".jsonl": read_json_lines,
    ".ndjson": read_json_lines,
    ".nt": read_n_triples,
    ".ttl": partial(read_rdf, "TURTLE"),
    ".nq": partial(read_rdf, "N_QUADS"),
    ".trig": partial(read_rdf, "TRIG"),
    ".rdf": partial(read_rdf, "RDF_XML"),
    ".owl": partial(read_rdf, "RDF_XML"),
    ".parquet": read_parquet,
    ".feather": read_feather,
    ".arrow": read_feather,
}
_TABLES = (".parquet", ".feather", ".arrow")
COMPRESSIONS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}

# What reading a damaged or incomplete file raises.
DAMAGE = (
    OSError, EOFError, NotImplementedError, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
    tarfile.TarError,
)  # fmt: skip
_MOST_BYTES = 10 << 30  # decompressed
_MOST_RATIO = 250  # decompressed to compressed bytes; text of triples stays far below
_FREE_BYTES = 64 << 20  # allowed whatever the ratio
_MOST_MEMBERS = 10_000
_LARGEST_READ = 16 << 20  # tarfile reads headers whole; a larger header is an attack
_RATIO = 5  # bytes of text per compressed byte, roughly
_STEMS = {**{split: split for split in SPLITS}, "validation": "valid", "dev": "valid"}
_SPLIT_FILE = re.compile(
    "({})({})?({})?".format(*("|".join(map(re.escape, x)) for x in (_STEMS, FORMATS, COMPRESSIONS)))
)


@dataclass(frozen=True)
class TripleFile:
    """A file of triples that can be opened several times."""

    where: str  # its name in messages
    suffix: str  # a key of FORMATS
    open: Callable[[], AbstractContextManager[IO[bytes]]]  # decompressed
    n_bytes: int  # of text; estimated for compressed files

    @classmethod
    def named(cls, where: str, open_raw: Opener, size: int, wrap: Wrapper | None = None) -> Self:
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
            if isinstance(error, OSError) and error.errno == errno.ENOMEM:
                raise MemoryError(error.strerror) from None
            if isinstance(error, OSError) and error.errno:
                raise DataError(f"{self.where}: cannot be read ({error.strerror})") from None
            raise DataError(f"{self.where}: damaged or cut off ({error}); get it again") from None

    def blocks(self, settings: Data, found: Found) -> Iterator[Block]:
        """The names in the file, block by block; `found` gets what was changed."""
        with self.stream() as stream:
            blocks = FORMATS[self.suffix](stream, self.where, settings, found)
            yield from keep_relations(blocks, self.where, settings, found)

    def sha256(self) -> str:
        """The hash of the decompressed bytes."""
        with self.stream() as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()  # type: ignore[arg-type]


Files: TypeAlias = dict[str, list[TripleFile]]
NAMES = ("entities", "relations")
# LibKGE's files of ids, and of ids and names.
_LIBKGE = {split: f"{split}.del" for split in SPLITS} | {
    "entities": "entity_ids.del", "relations": "relation_ids.del",
}  # fmt: skip


def file_sha256(path: Path) -> str:
    """The hash of a file as it is on disk."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _compression(name: str) -> str:
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


@contextmanager
def decompressed(open_raw: Opener, name: str, wrap: Wrapper | None = None) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz or .xz, then wrapped."""
    suffix = _compression(name)
    # gzip and lzma do not close the file they are given.
    with open_raw() as raw, COMPRESSIONS[suffix](raw, "rb") if suffix else raw as stream:
        yield wrap(stream) if wrap else stream


def folder_files(folder: Traversable, where: str) -> Files:
    """The files of a folder, by split; "" for parts of one list of triples.

    Each split is a file or a folder of parts. "entities" and "relations" are tables of names, for
    triples of ids, as LibKGE also writes them; "nodes" are files of Neo4j.
    """
    try:
        entries = {entry.name: entry for entry in folder.iterdir()}
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error.strerror})") from None
    files = {name: entry for name, entry in entries.items() if entry.is_file()}
    folders = {name: _STEMS[name] for name in entries if name in _STEMS and name not in files}
    if entries and not files and "train" not in folders.values():
        raise DataError(
            f"{where}: no train file in it, only folders{_examples(entries)}; choose one of them"
        )

    def triple_file(name: str) -> TripleFile:
        file = files[name]
        if isinstance(file, Path):
            return _loose_file(file, f"{where}/{name}")
        # Files inside a zipped package have no size, but are small.
        return TripleFile.named(f"{where}/{name}", lambda: file.open("rb"), 0)

    found: Files = {}
    for name, split in folders.items():
        found[split] = _parts(Path(where, name))
    names = {kind: [f"{kind}{end}" for end in _TABLES if f"{kind}{end}" in files] for kind in NAMES}
    if all(names.values()):
        found |= {kind: [triple_file(paths[0])] for kind, paths in names.items()}
    if "train" not in found:
        others = files.keys() - {path for paths in names.values() for path in paths}
        parts = sorted(filter(_is_part, others), key=_natural)
        has_train = any(_SPLIT_FILE.fullmatch(name) for name in files)
        if not has_train and files.keys() >= {"train.del", *map(_LIBKGE.__getitem__, NAMES)}:
            ids = {kind: name for kind, name in _LIBKGE.items() if name in files}
            return {kind: [replace(triple_file(name), suffix=".del")] for kind, name in ids.items()}
        if parts and not has_train:
            return {"": [triple_file(name) for name in parts], **found}
        if not has_train and (neo4j := neo4j_files(map(triple_file, sorted(files)))):
            return neo4j
        chosen = choose_splits(files, where)
        return {split: [triple_file(name)] for split, name in chosen.items()} | found
    return {split: found[split] for split in (*SPLITS, *NAMES) if split in found}


def _parts(folder: Path) -> list[TripleFile]:
    """The files of a split that is a folder of parts."""
    names = sorted((path.name for path in folder.iterdir()), key=_natural)
    parts = [_loose_file(folder / name, f"{folder}/{name}") for name in names if _is_part(name)]
    if not parts:
        raise DataError(f"{folder}: no parts in it, such as part-0.parquet{_examples(names)}")
    return parts


def _is_part(name: str) -> bool:
    """Is a file a part, as Spark, Dask and DuckDB name them?"""
    plain = name.lower().removesuffix(_compression(name))
    is_table = plain.endswith(_TABLES)
    is_hidden = name.startswith((".", "_"))
    return not is_hidden and (is_table or (name[:4] == "part" and plain.endswith(tuple(FORMATS))))


def _natural(name: str) -> list[tuple[int, str]]:
    """A key that sorts part.10 after part.9."""
    return [(int(text), "") if text.isdecimal() else (0, text) for text in re.split(r"(\d+)", name)]


def _loose_file(path: Path, where: str) -> TripleFile:
    """A file outside of an archive; if it is compressed, its bytes are counted."""
    size = path.stat().st_size
    allowed = max(_FREE_BYTES, size * _MOST_RATIO)
    limit = partial(_LimitedStream, path=path, allowed=allowed) if _compression(where) else None
    return TripleFile.named(where, lambda: path.open("rb"), size, limit)


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


@contextmanager
def split_files(path: Path) -> Iterator[Files]:
    """The files of a folder or an archive by split, open in this context; "" is a single file."""
    suffix = next((suffix for suffix in ARCHIVES if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        yield folder_files(path, str(path))
        return
    if suffix is None:
        yield {"": [_loose_file(path, str(path))]}
        return
    try:
        with ExitStack() as stack:
            members = _checked(path, ARCHIVES[suffix](path, stack))
            # A .gz member may be larger than its header states, so its bytes are counted.
            limit = partial(_LimitedStream, path=path, allowed=_allowed(path))
            yield {
                split: [TripleFile.named(f"{path}:{name}", *members[name], limit)]
                for split, name in choose_splits(members, str(path)).items()
            }
    except (*DAMAGE, ValueError, struct.error) as error:  # the last two: of invalid fields
        raise DataError(f"{path}: not a complete archive ({error}); get it again") from None


def _tar_members(path: Path, stack: ExitStack) -> Iterator[_Member]:
    # .tgz and .txz are short for .tar.gz and .tar.xz.
    name = path.name.lower().replace(".tgz", ".gz").replace(".txz", ".xz")
    limit = partial(_LimitedStream, path=path, allowed=math.inf)
    stream = stack.enter_context(decompressed(lambda: path.open("rb"), name, limit))
    tar = stack.enter_context(tarfile.TarFile(fileobj=stream))
    for member in tar:
        problem = None if member.isreg() or member.isdir() else "is a link or a device"
        opener = cast("Opener", partial(tar.extractfile, member))
        yield member.name, member.size, problem, None if member.isdir() else opener


def _zip_members(path: Path, stack: ExitStack) -> Iterator[_Member]:
    archive = stack.enter_context(zipfile.ZipFile(path))
    for member in archive.infolist():
        problem = None
        if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
            problem = "is a link or a device"
        elif member.flag_bits & 1:
            problem = "is encrypted"
        opener = None if member.is_dir() else partial(archive.open, member)
        # orig_filename is the name in the archive; zipfile has already cleaned filename.
        yield member.orig_filename, member.file_size, problem, opener


ARCHIVES = {
    ".zip": _zip_members,
    **dict.fromkeys((".tar.xz", ".tar.gz", ".tgz", ".txz", ".tar"), _tar_members),
}


def _checked(path: Path, members: Iterator[_Member]) -> dict[str, tuple[Opener, int]]:
    """How to open each file, and its size. Names and sizes may refuse the archive."""
    total, found = 0, {}
    for count, (name, n_bytes, problem, opener) in enumerate(members, start=1):
        parts = name.replace("\\", "/").split("/")
        if parts[0] == "" or parts[0].endswith(":") or ".." in parts or "\0" in name:
            problem = "leads outside of the archive"
        if name in found and opener:
            problem = "occurs twice"
        if problem:
            raise _refusal(path, f"{printable(name)} {problem}")
        total += n_bytes
        if total > _allowed(path):
            raise _too_large(path, _allowed(path))
        if count > _MOST_MEMBERS:
            raise _refusal(path, f"it has more than {_MOST_MEMBERS:,} members")
        if opener:
            found[name] = opener, n_bytes
    return found


class _LimitedStream(io.RawIOBase):
    """Refuses a single very large read, and more than `allowed` bytes in total."""

    def __init__(self, stream: IO[bytes], path: Path, allowed: float) -> None:
        self.stream, self.path, self.allowed = stream, path, allowed
        self.n_bytes = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise _refusal(self.path, "it has an overlong header")
        block = self.stream.read(size)
        self.n_bytes += len(block)
        if self.n_bytes > self.allowed:
            raise _too_large(self.path, self.allowed)
        return block

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seekable(self) -> bool:
        return self.stream.seekable()

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _allowed(path: Path) -> int:
    """The number of bytes that an archive may decompress to."""
    return min(_MOST_BYTES, max(_FREE_BYTES, path.stat().st_size * _MOST_RATIO))


def _too_large(path: Path, allowed: float) -> DataError:
    text = f"it would unpack to more than {allowed:,} bytes"
    return _refusal(path, text, "if you trust it, unpack it first")


def _refusal(
    path: Path, reason: str, remedy: str = "pack train, valid and test as plain files"
) -> DataError:
    """An error for a dangerous file."""
    return DataError(f"{path}: refused: {reason}; {remedy}")
