"""The file-system calls that writing a run needs.

Runs are written through these functions only, so that tests can replace them: by a full disk, or
by one that loses unsynced writes at a power cut. Nothing is durable before `sync`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Bytes: TypeAlias = bytes | memoryview  # a part of a file


def write(path: Path, parts: Iterable[Bytes]) -> None:
    """Write a new file. A file or link of that name is removed first, so no link is followed."""
    path.unlink(missing_ok=True)
    with path.open("xb") as file:
        for part in parts:
            file.write(part)


def append(path: Path, data: bytes) -> None:
    """Append all of `data` to a file, or nothing."""
    with path.open("ab", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            file.truncate(size)
            raise


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    folder.mkdir()


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder atomically; a file called `new` is replaced."""
    os.replace(old, new)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content; nothing happens if `path` is missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
