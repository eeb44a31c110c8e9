"""Who trains a run: at most one process, or one group of processes, at a time."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from allneg.errors import RecipeError, ResourceError
from allneg.runs import disk as seam
from allneg.runs.files import TEMPORARY, full_disk_named

_LOCK = ".lock"


def is_free(folder: Path) -> bool:
    """Does no process train the run in a folder now?"""
    lock = folder / _LOCK
    try:
        with FileLock(lock, timeout=0) if lock.exists() else contextlib.nullcontext():
            return True
    except (Timeout, OSError):  # OSError: not ours to lock, so not ours to know
        return False


@contextlib.contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from training the run in a folder; sweep what a killed one left."""
    holder = folder / ".holder"

    def who() -> str:
        there = holder.read_text().strip() if holder.exists() else "another process"
        return f"is being trained by {there}; wait for it"

    with locked(folder, who, seconds=1):  # `is_free` has it for a moment, too
        try:
            with full_disk_named(holder):
                holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
                for left in leftovers(folder):
                    seam.disk.remove(left)
            yield
        finally:
            holder.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, why: Callable[[], str], seconds: float = 0) -> Iterator[None]:
    """Keep a folder for this process; where another has it for so long, say `why` that matters."""
    lock = FileLock(folder / _LOCK)
    try:
        lock.acquire(timeout=seconds)
    except Timeout:
        raise RecipeError(f"{folder}: {why()}") from None
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written ({error.strerror})") from None
    try:
        yield
    finally:
        lock.release()


def leftovers(folder: Path) -> list[Path]:
    """What a killed process was in the middle of writing."""
    places = (folder, folder / "checkpoints")
    return [left for place in places for left in sorted(place.glob(TEMPORARY + "*"))]
