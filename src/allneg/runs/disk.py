"""The file-system calls that writing a run needs.

Runs are written through these functions only, so that tests can replace them: by a full disk, or
by one that loses unsynced writes at a power cut. Nothing is durable before `sync`.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

from allneg.paths import remove as remove
from allneg.paths import sync as sync

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


def make_folder(folder: Path) -> None:
    folder.mkdir()


def rename(old: Path, new: Path) -> None:
    """Rename a file or folder atomically; a file called `new` is replaced."""
    os.replace(old, new)


def free_bytes(folder: Path) -> int:
    return shutil.disk_usage(folder).free
