"""Archives of triples, read without extracting them to disk.

All members are checked before any is read. One dangerous member (a path that leads outside, a
link, a device, far too many bytes) refuses the whole archive.
"""

import io
import math
import stat
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TypeAlias, cast

from allneg.errors import DataError, printable
from allneg.graph.files import DAMAGE, Opener, TripleFile, choose_splits, decompressed, folder_files

_MOST_BYTES = 10 << 30  # decompressed
_MOST_RATIO = 250  # decompressed to compressed bytes; text of triples stays far below
_FREE_BYTES = 64 << 20  # allowed whatever the ratio
_MOST_MEMBERS = 10_000
_LARGEST_READ = 16 << 20  # tarfile reads headers whole; a larger header is an attack

# Name, size, reason to refuse it, and how to open it (None for a folder).
_Member: TypeAlias = tuple[str, int, str | None, Opener | None]
_Reader: TypeAlias = Callable[[Path, ExitStack], Iterator[_Member]]


@contextmanager
def split_files(path: Path) -> Iterator[dict[str, TripleFile]]:
    """The files of a folder or an archive by split, open in this context; "" is a single file."""
    suffix = next((suffix for suffix in ARCHIVES if path.name.lower().endswith(suffix)), None)
    if path.is_dir():
        yield folder_files(path, str(path))
    elif suffix is None:
        yield {"": TripleFile.named(str(path), lambda: path.open("rb"), path.stat().st_size)}
    else:
        with _archive_files(path, ARCHIVES[suffix]) as files:
            yield files


@contextmanager
def _archive_files(path: Path, read_members: _Reader) -> Iterator[dict[str, TripleFile]]:
    try:
        with ExitStack() as stack:
            members = _checked(path, read_members(path, stack))
            # A .gz member may be larger than its header states, so its bytes are counted.
            limit = partial(_LimitedStream, path=path, allowed=_allowed(path))
            yield {
                split: TripleFile.named(f"{path}:{name}", *members[name], limit)
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
        if problem:
            raise _refusal(path, f"{printable(name)} {problem}")
        total += n_bytes
        if total > _allowed(path):
            raise _refusal(path)
        if count > _MOST_MEMBERS:
            raise _refusal(path, f"it has more than {_MOST_MEMBERS:,} members")
        if opener:
            found[name] = opener, n_bytes
    return found


class _LimitedStream(io.RawIOBase):
    """Refuses a single very large read, and more than `allowed` bytes in total."""

    def __init__(self, stream: IO[bytes], path: Path, allowed: float) -> None:
        self.stream, self.path, self.left = stream, path, allowed

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1, /) -> bytes:
        if not 0 <= size <= _LARGEST_READ:
            raise _refusal(self.path, "it has an overlong header")
        block = self.stream.read(size)
        self.left -= len(block)
        if self.left < 0:
            raise _refusal(self.path)
        return block

    def readinto(self, buffer: memoryview, /) -> int:  # type: ignore[override]
        block = self.read(len(buffer))
        buffer[: len(block)] = block
        return len(block)

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _allowed(path: Path) -> int:
    """The number of bytes that an archive may decompress to."""
    return min(_MOST_BYTES, max(_FREE_BYTES, path.stat().st_size * _MOST_RATIO))


def _refusal(path: Path, reason: str = "") -> DataError:
    """An error for a dangerous archive; without a reason, it is too large."""
    reason = reason or f"it would unpack to more than {_allowed(path):,} bytes"
    return DataError(f"{path}: refused: {reason}; pack train, valid and test as plain files")
