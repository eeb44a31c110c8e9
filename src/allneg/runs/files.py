"""Writing so that a reader sees the old file or the new one, never a part."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allneg.errors import RunError, ResourceError
from allneg.runs import disk as seam

if TYPE_CHECKING:
    from torch import Tensor

TEMPORARY = ".tmp-"  # our own leftovers begin so, and may be swept
_LARGEST_JSON = 1 << 28  # bytes; a report of a hundred thousand relations has a tenth of it


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` at once."""
    write_bytes(path, text.encode())


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by `data` at once."""
    write_parts(path, [data], len(data))


def write_parts(path: Path, parts: Iterable[seam.Bytes], size: int = 0) -> None:
    """Replace `path` by `parts` at once, or leave it as it was; `size` is what they need."""
    # Of its own: another process may be writing the same file.
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    with full_disk_named(path, size):
        _refuse_if_odd(path)
        try:
            seam.disk.write(temporary, parts)
            seam.disk.sync(temporary)
            seam.disk.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                seam.disk.remove(temporary)  # nothing sweeps a folder that is no run's
            raise
        seam.disk.sync(path.parent)


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def append_text(path: Path, text: str) -> None:
    """Add `text` at the end of a file. It is not sure to last before `sync`."""
    with full_disk_named(path, len(text)):
        _refuse_if_odd(path)
        seam.disk.append(path, text.encode())


def sync(path: Path) -> None:
    """Make what was written last: a file's content, or the names in a folder."""
    with full_disk_named(path):
        seam.disk.sync(path)


def read_json(path: Path) -> Any:
    """The JSON in `path`; a `RunError` that names the file when it cannot be had."""
    try:
        with unreadable_named(path):
            if path.stat().st_size > _LARGEST_JSON:
                raise RunError(
                    f"{path}: larger than {_LARGEST_JSON:,} bytes; not one of a run's files"
                )
            return json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not JSON ({error}); the file is damaged") from None


@contextlib.contextmanager
def unreadable_named(path: Path) -> Iterator[None]:
    """Make of an `OSError` a `RunError` that names `path`, as `full_disk_named` does in writing."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror})") from None


def read_table(path: Path) -> dict[str, Any]:
    """The JSON in `path`, which has names and values."""
    said = read_json(path)
    if not isinstance(said, dict):
        raise RunError(f"{path}: holds no names and values; the file is damaged")
    return said


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a safetensors file where nothing is yet, down to the disk; its size and SHA-256.

    The bytes are hashed on their way, so that the proof is of what was meant to be written.
    """
    # Not at the top: torch-free commands read JSON through this file's neighbours.
    from allneg.runs.tensors import parts

    needed, size, digest = sum(each.nbytes for each in tensors.values()), 0, hashlib.sha256()

    def hashed() -> Iterator[seam.Bytes]:
        nonlocal size
        for part in parts(tensors):
            size += len(part)
            digest.update(part)
            yield part

    with full_disk_named(path, needed):
        seam.disk.write(path, hashed())
        seam.disk.sync(path)
    return {"bytes": size, "sha256": digest.hexdigest()}


def read_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None
    except SafetensorError as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}); it is damaged") from None


def proof(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def is_proof(said: Any) -> bool:
    return isinstance(said, dict) and said.keys() == {"bytes", "sha256"}


def check_proof(path: Path, said: Mapping[str, Any]) -> None:
    """Raise a `RunError` that names the file and the check, unless it is the one that was written."""
    if not path.is_file():
        raise RunError(f"{path}: missing; the run is not whole")
    found = path.stat().st_size
    if found != said["bytes"]:
        raise RunError(f"{path}: {found:,} bytes where {said['bytes']} were written; damaged")
    with unreadable_named(path):
        digest = proof(path)["sha256"]
    if digest != said["sha256"]:
        raise RunError(
            f"{path}: its SHA-256 begins {digest[:12]}, and that of what was written "
            f"{str(said['sha256'])[:12]}; the file is damaged, or another's"
        )


def need_bytes(folder: Path, size: int) -> None:
    """Complain before anything is written, if a folder has less room than that."""
    with full_disk_named(folder):
        free = seam.disk.free_bytes(folder)
    if free < size:
        raise ResourceError(_full(folder, size, free))


@contextlib.contextmanager
def full_disk_named(path: Path, size: int = 0) -> Iterator[None]:
    """Turn a failed write of `size` bytes into a `AllnegError` that names the file."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise ResourceError(_full(path, size)) from None
        raise ResourceError(f"{path}: cannot be written ({error.strerror or error})") from None


def need_writable(folder: Path) -> None:
    """Raise an `OSError` unless files can be made in a folder."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        what = errno.EACCES if folder.is_dir() else errno.ENOTDIR
        raise OSError(what, os.strerror(what))


def _full(path: Path, size: int, free: int | None = None) -> str:
    needed = f" ({size:,} bytes are needed)" if size else ""
    if free is not None:
        needed = f" ({size:,} bytes are needed, {free:,} are free)"
    return f"{path}: the disk is full{needed}; free some space; a run goes on by `allneg resume`"


def _refuse_if_odd(path: Path) -> None:
    """Only a plain file is ever replaced or added to: no link, no device."""
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        raise ResourceError(f"{path}: not a plain file, so it is not replaced; move it away")
