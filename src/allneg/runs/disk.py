"""The few things that writing a run asks of a file system.

They stand together so that a test can put another disk in this one's place: one that is full,
or one that forgets at a power cut what was not synced.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import TypeAlias

Bytes: TypeAlias = bytes | memoryview  # a part of a file


class Disk:
    """The real one. Nothing lasts before it is synced: a file's content nor a folder's names."""

    def write(self, path: Path, parts: Iterable[Bytes]) -> None:
        """A new file; one of that name is removed first, so that no link is followed."""
        path.unlink(missing_ok=True)
        with path.open("xb") as file:
            for part in parts:
                file.write(part)

    def append(self, path: Path, data: bytes) -> None:
        """Add to a file all of `data` or nothing."""
        with path.open("ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            try:
                while data:
                    data = data[file.write(data) :]
            except OSError:
                file.truncate(size)
                raise

    def sync(self, path: Path) -> None:
        """Make a file's content, or the names in a folder, last."""
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)

    def make_folder(self, folder: Path) -> None:
        folder.mkdir()

    def replace(self, old: Path, new: Path) -> None:
        """Give a file another's name, at once."""
        os.replace(old, new)

    def rename(self, old: Path, new: Path) -> None:
        """Give a folder a name that is free."""
        os.rename(old, new)

    def remove(self, path: Path) -> None:
        """Take away a file, a link, or a folder with all that is in it."""
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def free_bytes(self, folder: Path) -> int:
        """How much can be written in a folder."""
        return shutil.disk_usage(folder).free


disk = Disk()
