"""Compressed files and archives: their bytes and members, in bounded memory.

Archives are read without extracting them to disk. All members are checked before any is read. One
dangerous member (a path that leads outside, a link, a device, far too many bytes) refuses the
whole archive.
"""

import gzip
import io
import lzma
import math
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeAlias, cast

from allneg.errors import DataError, printable

Opener: TypeAlias = Callable[[], IO[bytes]]
Wrapper: TypeAlias = Callable[[IO[bytes]], Any]
# A member of an archive: name, size, reason to refuse it, how to open it (None for a folder).
_Member: TypeAlias = tuple[str, int, str | None, Opener | None]

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


def compression(name: str) -> str:
    """The last suffix of a name, if it is one of COMPRESSIONS; else ""."""
    return next((suffix for suffix in COMPRESSIONS if name.lower().endswith(suffix)), "")


@contextmanager
def decompressed(open_raw: Opener, name: str, wrap: Wrapper | None = None) -> Iterator[IO[bytes]]:
    """The bytes of a file, decompressed if its name ends in .gz or .xz, then wrapped."""
    suffix = compression(name)
    # gzip and lzma do not close the file they are given.
    with open_raw() as raw, COMPRESSIONS[suffix](raw, "rb") if suffix else raw as stream:
        yield wrap(stream) if wrap else stream


def limit_bytes(path: Path, most: int | None = _MOST_BYTES) -> Wrapper:
    """A wrapper that refuses far more bytes than a compressed file or an archive should have."""
    return partial(_LimitedStream, path=path, allowed=_allowed(path, most))


def open_members(path: Path, suffix: str, stack: ExitStack) -> dict[str, tuple[Opener, int]]:
    """How to open each file of an archive, and its size. Names and sizes may refuse the archive."""
    total, found = 0, {}
    for count, (name, n_bytes, problem, opener) in enumerate(ARCHIVES[suffix](path, stack), 1):
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


def _allowed(path: Path, most: int | None = _MOST_BYTES) -> int:
    """The number of bytes that a file may decompress to."""
    allowed = max(_FREE_BYTES, path.stat().st_size * _MOST_RATIO)
    return allowed if most is None else min(most, allowed)


def _too_large(path: Path, allowed: float) -> DataError:
    text = f"it would unpack to more than {allowed:,} bytes"
    return _refusal(path, text, "if you trust it, unpack it first")


def _refusal(
    path: Path, reason: str, remedy: str = "pack train, valid and test as plain files"
) -> DataError:
    """An error for a dangerous file."""
    return DataError(f"{path}: refused: {reason}; {remedy}")
