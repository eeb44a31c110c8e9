"""The cache folder: downloads and graphs on disk, which can all be made again."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from allneg.errors import RecipeError, ResourceError

TEMPORARY = ".tmp-"  # begins the names of unfinished files and folders, which may be deleted


def cache_folder() -> Path:
    """$ALLNEG_HOME, or the user's cache folder."""
    if home := os.environ.get("ALLNEG_HOME"):
        return Path(home)
    try:
        from platformdirs import user_cache_path
    except ModuleNotFoundError:  # on a machine with only the packages for training
        raise RecipeError(
            "the cache folder is unknown, as platformdirs is not installed: set ALLNEG_HOME"
        ) from None
    return user_cache_path("allneg")


def is_offline() -> bool:
    """Whether downloads are forbidden."""
    return os.environ.get("ALLNEG_OFFLINE", "0") not in ("", "0")


def make_folder(folder: Path) -> None:
    """Create a folder and its missing parents.

    Only this user may write to them, whatever the umask: the cache holds libraries.
    """
    for path in reversed((folder, *folder.parents)):
        path.mkdir(mode=0o755, exist_ok=True)


@contextmanager
def locked(folder: Path, lock: str) -> Iterator[None]:
    """Create `folder` and hold its lock file; other processes wait.

    A failure to write becomes a `ResourceError`.
    """
    # A lazy import: filelock loads asyncio, which is slow.
    from filelock import FileLock

    try:
        make_folder(folder)
        with FileLock(folder / lock):
            yield
    except OSError as error:
        raise ResourceError(
            f"{folder}: cannot be written ({error.strerror or error}); "
            "free some disk space, or set ALLNEG_HOME to another folder"
        ) from None


@contextmanager
def complete_folder(target: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `target` at the end: it appears complete or not at all.

    An earlier `target` is replaced. Only one process at a time may do this.
    """
    folder = target.with_name(f"{TEMPORARY}{target.name}")
    remove(folder)  # left by a killed process
    try:
        folder.mkdir(parents=True)
        yield folder
        remove(target)
        os.rename(folder, target)
        sync(target.parent)
    finally:
        remove(folder)


def remove(path: Path) -> None:
    """Remove a file, a link, or a folder with its content; nothing happens if `path` is missing."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):  # `unlink` fails on a read-only disk even if `path` is missing
        path.unlink(missing_ok=True)


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable.

    Windows opens no folders, and syncs only files that are open for writing.
    """
    if os.name == "nt" and path.is_dir():
        return
    handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
