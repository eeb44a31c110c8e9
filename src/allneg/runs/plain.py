"""Plain files and folders: what a run may contain. Its folder may be untrusted.

Whatever opens, lists or locks something in a run does it here. A link may lead out of the folder;
reading a pipe or a device may never end. Both are an `OSError`, and nothing is opened.
"""

import errno
import io
import os
import stat
from pathlib import Path

from filelock import BaseFileLock, FileLock

# If another process puts a link or a pipe in the place of a file, this neither follows nor waits.
# Windows lacks both flags.
_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_KINDS = {
    stat.S_IFLNK: "a link", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file",
    stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket",
}  # fmt: skip


def exists(path: Path) -> bool:
    """Is there anything of that name, even a link to nothing?"""
    return os.path.lexists(path)


def is_utf8(path: Path) -> bool:
    """Whether safetensors can open files of this path."""
    return not any("\ud800" <= c <= "\udfff" for c in str(path))


def check_file(path: Path) -> os.stat_result:
    """The size and times of a plain file; an `OSError` if `path` is anything else."""
    return _check(path, stat.S_IFREG, "a plain file")


def check_folder(path: Path) -> None:
    _check(path, stat.S_IFDIR, "a folder of its own")


def _check(path: Path, kind: int, expected: str) -> os.stat_result:
    found = path.lstat()
    if (actual := stat.S_IFMT(found.st_mode)) != kind:
        raise OSError(errno.EINVAL, f"{_KINDS.get(actual, 'a device')}, not {expected}", str(path))
    return found


def entries(folder: Path) -> list[Path]:
    """What is in a folder, sorted by name; nothing if the folder is missing."""
    if not exists(folder):
        return []
    check_folder(folder)
    return sorted(folder.iterdir())


def open_file(path: Path) -> io.BufferedReader:
    """Open a plain file for reading."""
    check_file(path)
    return open(os.open(path, _FLAGS), "rb")


def read(path: Path, limit: int) -> bytes:
    """The content of a plain file of at most `limit` bytes."""
    size = check_file(path).st_size
    if size > limit:
        raise OSError(errno.EFBIG, f"larger than {limit:,} bytes", str(path))
    with open_file(path) as file:
        return file.read(size)


def lock(path: Path, seconds: float = -1) -> BaseFileLock:
    """A lock that is not held yet; it waits up to `seconds`, or for ever.

    Some versions of filelock empty the file that they lock, so it must have no other name.
    """
    if exists(path) and check_file(path).st_nlink > 1:
        raise OSError(errno.EMLINK, "a file with several names, not a lock", str(path))
    return FileLock(path, timeout=seconds)
