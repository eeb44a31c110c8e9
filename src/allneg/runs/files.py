"""Write files atomically, read them with clear errors, and check them against their SHA-256."""

import contextlib
import errno
import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from allneg.errors import ResourceError, RunError
from allneg.runs import disk

TEMPORARY = ".tmp-"  # prefix of unfinished files; whatever has it may be deleted
_MAX_JSON_BYTES = 1 << 28  # ten times the report of a graph with 100,000 relations
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32,
}  # fmt: skip


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically."""
    data = text.encode()
    write_parts(path, [data], len(data))


def write_json(path: Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_parts(path: Path, parts: Iterable[disk.Bytes], size: int = 0) -> None:
    """Replace `path` by `parts`, `size` bytes in all, or leave it as it was."""
    # The process id keeps two processes that write the same file apart.
    temporary = path.with_name(f"{TEMPORARY}{os.getpid()}-{path.name}")
    with write_errors(path, size):
        _check_plain_file(path)
        with removed_on_error(temporary):
            disk.write(temporary, parts)
            disk.sync(temporary)
            disk.rename(temporary, path)
        disk.sync(path.parent)


def append_text(path: Path, text: str) -> None:
    """Append `text` to a file. It is durable only after `sync`."""
    with write_errors(path, len(text)):
        _check_plain_file(path)
        disk.append(path, text.encode())


def sync(path: Path) -> None:
    """Make the content of a file, or the names in a folder, durable."""
    with write_errors(path):
        disk.sync(path)


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in `path`; a `RunError` that names the file if there is none."""
    try:
        with read_errors(path):
            if path.stat().st_size > _MAX_JSON_BYTES:
                raise RunError(f"{path}: larger than {_MAX_JSON_BYTES:,} bytes; not a run's file")
            content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise RunError(f"{path}: not JSON ({error}); the file is damaged") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object; the file is damaged")
    return content


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a new safetensors file and sync it; its size and SHA-256.

    The bytes are hashed before they are written, so a later check finds errors of the disk.
    safetensors' own `save_file` does not sync and leaves temporary files when it is killed.
    """
    size, digest = 0, hashlib.sha256()

    def hashed_parts() -> Iterator[disk.Bytes]:
        nonlocal size
        names = {dtype: name for name, dtype in DTYPES.items()}
        about = {name: (names[tensor.dtype], tensor.shape) for name, tensor in tensors.items()}
        for part in tensor_bytes(about, lambda name: [tensors[name].detach()]):
            size += len(part)
            digest.update(part)
            yield part

    with write_errors(path, sum(tensor.nbytes for tensor in tensors.values())):
        disk.write(path, hashed_parts())
        disk.sync(path)
    return {"bytes": size, "sha256": digest.hexdigest()}


def tensor_bytes(
    tensors: Mapping[str, tuple[str, Sequence[int]]], blocks: Callable[[str], Iterable[Tensor]]
) -> Iterator[disk.Bytes]:
    """The bytes of a safetensors file; only one block of rows is copied at a time."""
    # Wide numbers first, so that every tensor is aligned; then by name.
    order = sorted(tensors, key=lambda name: (-DTYPES[tensors[name][0]].itemsize, name))
    entries, end = {}, 0
    for name in order:
        dtype, shape = tensors[name]
        start, end = end, end + math.prod(shape) * DTYPES[dtype].itemsize
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        for block in blocks(name):
            if block.numel():
                yield block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    with read_errors(path):
        return load_file(path)


def checksum(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def are_checksums(content: Any) -> bool:
    """Is this a table of file names and their checksums?"""
    return isinstance(content, dict) and all(
        isinstance(entry, dict) and entry.keys() == {"bytes", "sha256"}
        for entry in content.values()
    )


def check_files(folder: Path, expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise a `RunError` that names the first file without its expected checksum."""
    for name, recorded in expected.items():
        path = folder / name
        if not path.is_file():
            raise RunError(f"{path}: missing; the run is not complete")
        with read_errors(path):
            size = path.stat().st_size
            if size != recorded["bytes"]:
                raise RunError(f"{path}: {size:,} bytes instead of {recorded['bytes']}; damaged")
            digest = checksum(path)["sha256"]
        if digest != recorded["sha256"]:
            raise RunError(
                f"{path}: its SHA-256 is {digest[:12]}… instead of {str(recorded['sha256'])[:12]}…;"
                " the file is damaged or from another run"
            )


def need_bytes(folder: Path, size: int) -> None:
    """Raise a `ResourceError` unless a folder has `size` bytes free."""
    with write_errors(folder):
        free = disk.free_bytes(folder)
    if free < size:
        raise ResourceError(_disk_full(folder, f"{size:,} bytes are needed, {free:,} are free"))


def need_writable(folder: Path) -> None:
    """Raise an `OSError` unless files can be created in a folder."""
    if not folder.is_dir() or not os.access(folder, os.W_OK | os.X_OK):
        code = errno.EACCES if folder.is_dir() else errno.ENOTDIR
        raise OSError(code, os.strerror(code))


@contextlib.contextmanager
def write_errors(path: Path, size: int = 0) -> Iterator[None]:
    """Turn an `OSError` from writing `size` bytes into a `ResourceError` that names `path`."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            needed = f"{size:,} bytes are needed" if size else ""
            raise ResourceError(_disk_full(path, needed)) from None
        raise ResourceError(f"{path}: cannot be written ({error.strerror or error})") from None


@contextlib.contextmanager
def removed_on_error(path: Path) -> Iterator[None]:
    """Remove a file or folder if the block that writes it fails."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):
            disk.remove(path)
        raise


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turn an error from reading a file into a `RunError` that names `path`."""
    try:
        yield
    except SafetensorError as error:
        raise RunError(f"{path}: not a whole safetensors file ({error}); it is damaged") from None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror or error})") from None


def _disk_full(path: Path, needed: str) -> str:
    needed = f" ({needed})" if needed else ""
    return f"{path}: the disk is full{needed}; free some space"


def _check_plain_file(path: Path) -> None:
    """Raise a `ResourceError` if `path` is a link, a device or a folder: those stay untouched."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(path.lstat().st_mode):
            raise ResourceError(f"{path}: not a plain file, so it is not replaced; move it away")
