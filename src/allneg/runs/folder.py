"""The folder of a run: its name, the process that creates it, and the one that trains it."""

import contextlib
import os
import platform
import shlex
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import torch
from filelock import FileLock, Timeout

from allneg import __version__
from allneg.errors import AllnegError, RecipeError, ResourceError
from allneg.hardware import find_device
from allneg.recipe import Hardware, Recipe
from allneg.runs import disk
from allneg.runs.files import TEMPORARY, need_writable, read_table, write_errors

_LOCK = ".lock"


def new_folder(recipe: Recipe) -> Path:
    """A free name for a run without --out: runs/DATE_DATA_MODEL, with a number if taken."""
    data = Path(recipe.data.name).name.split(".")[0] or "data"
    base = Path("runs") / f"{time.strftime('%Y-%m-%d')}_{data}_{recipe.model.name}"
    folder, number = base, 2
    while folder.exists():
        folder, number = base.with_name(f"{base.name}_{number}"), number + 1
    return folder


def check_new(folder: Path) -> None:
    """Raise an `AllnegError` unless a run can be created in a folder; nothing is written."""
    with write_errors(folder):
        if folder.is_symlink():
            raise RecipeError(f"{folder}: is a link; choose another --out, or the link's target")
        if folder.exists() and not folder.is_dir():
            raise RecipeError(f"{folder}: exists and is not a folder; choose another --out")
        if folder.exists() and any(folder.iterdir()):
            raise _taken(folder)
        need_writable(next(path for path in folder.absolute().parents if path.exists()))


def claim(folder: Path) -> None:
    """Create a folder for a run; of several processes that try, only one succeeds."""
    with write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        try:
            disk.make_folder(folder / "checkpoints")
        except FileExistsError:
            raise _taken(folder) from None
        except BaseException:
            with contextlib.suppress(OSError):
                folder.rmdir()
            raise


def _taken(folder: Path) -> RecipeError:
    if not (folder / "run.json").exists():
        return RecipeError(f"{folder}: not empty and not a run; choose another --out")
    return RecipeError(
        f"{folder}: already exists; continue it with `allneg resume`, or choose another --out"
    )


def is_free(folder: Path) -> bool:
    """Is no process training the run in a folder?"""
    if not (folder / _LOCK).exists():
        return True
    try:
        with locked(folder, str):
            return True
    except AllnegError:  # locked, or another user's file
        return False


@contextlib.contextmanager
def training_lock(folder: Path) -> Iterator[None]:
    """Lock a run for training, and delete what a killed process left behind."""
    holder = folder / ".holder"

    def reason() -> str:
        owner = holder.read_text().strip() if holder.exists() else "another process"
        return f"is being trained by {owner}; wait for it"

    with locked(folder, reason, seconds=1):  # `is_free` holds the lock for a moment
        try:
            with write_errors(holder):
                holder.write_text(f"process {os.getpid()} on {socket.gethostname()}")
                for path in leftovers(folder):
                    disk.remove(path)
            yield
        finally:
            holder.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(folder: Path, reason: Callable[[], str], seconds: float = 0) -> Iterator[None]:
    """Lock a folder, waiting up to `seconds`; `reason` completes the message if it is taken."""
    try:
        lock = FileLock(folder / _LOCK).acquire(timeout=seconds)
    except Timeout:
        raise RecipeError(f"{folder}: {reason()}") from None
    except OSError as error:
        raise ResourceError(f"{folder}: cannot be written ({error.strerror})") from None
    with lock:
        yield


def leftovers(folder: Path) -> list[Path]:
    """Files and folders that a killed process did not finish."""
    return sorted([*folder.glob(f"{TEMPORARY}*"), *folder.glob(f"checkpoints/{TEMPORARY}*")])


def environment(hardware: Hardware) -> dict[str, Any]:
    """What environment.json holds about this process."""
    device = find_device(hardware.device)
    return {
        "command": shlex.join(["allneg", *sys.argv[1:]]),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "allneg": __version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "safetensors": safetensors.__version__,
        "threads": hardware.threads or torch.get_num_threads(),
        "device": str(device),
        "cuda": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "launcher": _launcher(),
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def is_ours(folder: Path) -> bool:
    """Has the torchrun that started the run in a folder restarted it after a failure?"""
    if _launcher() is None or not (folder / "run.json").exists():
        return False
    return bool(read_table(folder / "environment.json").get("launcher") == _launcher())


def _launcher() -> str | None:
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    if run_id is None:
        return None
    return f"torchrun {run_id}, process {os.getppid()} on {socket.gethostname()}"
