"""Writing so that a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import BadRun, OutOfResources

TEMPORARY = ".tmp-"  # our own leftovers begin so, and may be swept


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` at once."""
    temporary = path.with_name(TEMPORARY + path.name)
    with full_disk_named(path):
        with temporary.open("wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def read_json(path: Path) -> Any:
    """The JSON in `path`; a `BadRun` that names the file when it cannot be had."""
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise BadRun(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise BadRun(f"{path}: not JSON ({error}); the file is damaged") from None


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file where nothing is yet, down to the disk."""
    # Not at the top: torch-free commands read JSON through this file's neighbours.
    from safetensors.torch import save_file

    with full_disk_named(path):
        save_file({name: each.detach().cpu().contiguous() for name, each in tensors.items()}, path)
        # save_file leaves mode 0600 and does not sync.
        os.chmod(path, 0o666 & ~_umask())
        with path.open("rb") as file:
            os.fsync(file.fileno())


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise BadRun(f"{path}: cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise BadRun(f"{path}: not a whole safetensors file ({error}); it is damaged") from None


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Make renames inside `folder` last."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def full_disk_named(path: Path) -> Iterator[None]:
    """Turn a failed write into a `Problem` that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            text = f"{path}: the disk is full; free some space, then `allneg resume` the run"
        else:
            text = f"{path}: cannot be written ({error.strerror or error})"
        raise OutOfResources(text) from None
    except Exception as error:
        # safetensors reports a failed write as its own kind of error.
        if type(error).__name__ != "SafetensorError":
            raise
        raise OutOfResources(f"{path}: cannot be written ({error})") from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
