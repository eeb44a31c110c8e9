"""Archives of triples, read in place: nothing is ever unpacked onto the disk.

Every member is looked at before any is read, and one that could do harm (a path that leads
outside, a link, a device, far too many bytes) refuses the whole archive.
"""

from __future__ import annotations

import io
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from allneg.errors import DataError, printable
from allneg.graph.files import DAMAGE, TripleFile, choose_splits, triple_file, unpacked

_TAR = (".tar.xz", ".tar.gz", ".tgz", ".txz", ".tar")
_MOST_BYTES = 10 << 30  # unpacked
_MOST_RATIO = 250  # unpacked to packed, beyond what any text of triples reaches …
_FREE_BYTES = 64 << 20  # … unless it is small anyway
_MOST_MEMBERS = 10_000
_LARGEST_READ = 16 << 20  # tar headers are read whole; a larger one is an attack

# By name, each to be opened, and its size.
_Members: TypeAlias = dict[str, tuple[Callable[[], IO[bytes]], int]]
# What zipfile and tarfile raise, besides their own errors, of fields that make no sense.
_NONSENSE = (ValueError, NotImplementedError, struct.error)


def is_archive(path: Path) -> bool:
    return path.name.lower().endswith((*_TAR, ".zip"))


@contextmanager
def archive_files(path: Path) -> Iterator[dict[str, TripleFile]]:
    """The files of the splits in an archive, by split; they can be read while it is open."""
    opened = _zip if path.name.lower().endswith(".zip") else _tar
    try:
        with ExitStack() as stack:
            try:
                members = stack.enter_context(opened(path))
            except _NONSENSE as error:
                raise _damage(path, error) from None
            chosen = choose_splits(members, str(path))
            yield {
                split: _limited(triple_file(f"{path}:{name}", *members[name]), path)
                for split, name in chosen.items()
            }
    except DAMAGE as error:
        raise _damage(path, error) from None


def _damage(path: Path, error: Exception) -> DataError:
    return DataError(f"{path}: not a whole archive ({error}); get it again")


def _limited(file: TripleFile, path: Path) -> TripleFile:
    """A member that may be packed once more: then its size in the archive says nothing."""

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with file.open() as stream:
            yield cast("IO[bytes]", io.BufferedReader(_Counted(stream, path)))

    return replace(file, open=opened)


@contextmanager
def _tar(path: Path) -> Iterator[_Members]:
    with unpacked(lambda: path.open("rb"), path.name) as stream:
        limited = cast("IO[bytes]", _SmallReads(stream, path))
        with tarfile.open(fileobj=limited, mode="r:") as tar:
            guard, members = _Guard(path), {}
            for member in tar:
                guard.look(member.name, member.size)
                if member.isdir():
                    continue
                if not member.isreg():
                    raise _refusal(path, f"{printable(member.name)} is a link or a device")
                members[member.name] = _tar_opener(tar, member), member.size
            yield members


def _tar_opener(tar: tarfile.TarFile, member: tarfile.TarInfo) -> Callable[[], IO[bytes]]:
    return lambda: cast("IO[bytes]", tar.extractfile(member))


@contextmanager
def _zip(path: Path) -> Iterator[_Members]:
    with zipfile.ZipFile(path) as archive:
        guard, members = _Guard(path), {}
        for member in archive.infolist():
            # orig_filename is the name as it is written; filename has been made harmless already.
            guard.look(member.orig_filename, member.file_size)
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise _refusal(path, f"{printable(member.filename)} is a link or a device")
            if member.flag_bits & 1:
                raise _refusal(path, f"{printable(member.filename)} is locked by a password")
            if not member.is_dir():
                members[member.filename] = _zip_opener(archive, member), member.file_size
        yield members


def _zip_opener(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Callable[[], IO[bytes]]:
    def opened() -> IO[bytes]:
        try:
            return archive.open(member)
        except NotImplementedError as error:
            raise DataError(
                f"{archive.filename}:{member.filename}: {error}; pack it anew"
            ) from None

    return opened


class _Guard:
    """Refuses an archive for one of its names, or once its members are too many or too large."""

    def __init__(self, path: Path) -> None:
        self.path, self.bytes, self.members = path, 0, 0
        self.allowed = _allowed(path)

    def look(self, name: str, n_bytes: int) -> None:
        parts = name.replace("\\", "/").split("/")
        if parts[0] == "" or parts[0].endswith(":") or ".." in parts or "\0" in name:
            raise _refusal(self.path, f"{printable(name)} leads outside of the archive")
        self.bytes += n_bytes
        self.members += 1
        if self.bytes > self.allowed:
            raise _too_large(self.path)
        if self.members > _MOST_MEMBERS:
            raise _refusal(self.path, f"it has more than {_MOST_MEMBERS:,} members")


def _allowed(path: Path) -> int:
    """How many bytes an archive may unpack to."""
    return min(_MOST_BYTES, max(_FREE_BYTES, path.stat().st_size * _MOST_RATIO))


def _too_large(path: Path) -> DataError:
    return _refusal(path, f"it would unpack to more than {_allowed(path):,} bytes")


def _refusal(path: Path, why: str) -> DataError:
    return DataError(f"{path}: refused: {why}; pack train, valid and test as plain files")


class _Counted(io.RawIOBase):
    """A stream that ends with a refusal once it has handed out too much."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path, self.left = stream, path, _allowed(path)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int:
        into = memoryview(buffer)
        block = self.stream.read(len(into))
        self.left -= len(block)
        if self.left < 0:
            raise _too_large(self.path)
        into[: len(block)] = block
        return len(block)


class _SmallReads(io.RawIOBase):
    """A stream that refuses to hand out very much at once: tarfile reads a header whole."""

    def __init__(self, stream: IO[bytes], path: Path) -> None:
        self.stream, self.path = stream, path

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise _refusal(self.path, "it has an overlong header")
        return self.stream.read(size)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()
