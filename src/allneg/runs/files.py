"""Write files atomically, read them with clear errors, and check them against their SHA-256."""

import contextlib
import errno
import hashlib
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from allneg.errors import ResourceError, RunError, printable
from allneg.paths import TEMPORARY as TEMPORARY
from allneg.runs import disk, plain

SMALL = 1 << 20  # bytes; most files of a run are smaller
LARGE = 1 << 28  # bytes; ten times the report of a graph with 100,000 relations
_BLOCK = 1 << 26  # bytes of a tensor that are copied, hashed and written together
_MAX_DEPTH = 32  # of nested JSON; a report has 4 levels
DTYPES = {  # by their names in safetensors
    "F64": torch.float64, "F32": torch.float32, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32,
}  # fmt: skip


def write_text(path: Path, text: str) -> None:
    """Replace `path` by `text` atomically."""
    data = text.encode()
    write_parts(path, [data], len(data))


def write_json(path: Path, value: Any) -> None:
    """Replace `path` by JSON. Bytes of a path that are not UTF-8 become text such as \\udcff."""
    text = json.dumps(value, ensure_ascii=False, indent=2) + "\n"
    write_text(path, re.sub("[\ud800-\udfff]", lambda match: rf"\\u{ord(match[0]):04x}", text))


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


def read_bytes(path: Path, limit: int = SMALL) -> bytes:
    """The content of a plain file; a `RunError` that names the file if there is none."""
    with read_errors(path):
        return plain.read(path, limit)


def read_json(path: Path, limit: int = SMALL) -> dict[str, Any]:
    """The JSON object in `path`; a `RunError` that names the file if there is none."""
    try:
        content = parse_json(read_bytes(path, limit))
    except ValueError as error:
        raise RunError(f"{path}: not JSON ({error}); the file is damaged") from None
    if not isinstance(content, dict):
        raise RunError(f"{path}: not a JSON object; the file is damaged")
    return content


def parse_json(data: bytes) -> Any:
    """The value of a JSON text; a `ValueError` if it is malformed or nested too deeply."""
    try:
        content = json.loads(data.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None
    _check_value(content, _MAX_DEPTH)
    return content


def _check_value(value: Any, levels: int) -> None:
    """Raise a `ValueError` for deeper nesting, and for text that UTF-8 cannot express."""
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, dict | list):
        if not levels:
            raise ValueError("nested too deeply")
        for item in value:
            _check_value(item, levels - 1)
        for item in value.values() if isinstance(value, dict) else ():
            _check_value(item, levels - 1)


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Write a new safetensors file and sync it; its size and SHA-256.

    The bytes are hashed from memory, so a later check finds errors of the disk.
    safetensors' own `save_file` does not sync and leaves temporary files when it is killed.
    """
    size, digest = 0, hashlib.sha256()
    about = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}

    def hashed_parts(thread: Executor) -> Iterator[disk.Bytes]:
        nonlocal size
        for part in tensor_bytes(about, lambda name: _blocks(tensors[name].detach())):
            size += len(part)
            hashed = thread.submit(digest.update, part)  # hash a part while it is written
            yield part
            hashed.result()

    # The thread ends here even if a write fails: garbage collection, which ends such a generator,
    # may run in a thread that is just starting, where it could not wait for another one.
    with (
        write_errors(path, sum(tensor.nbytes for tensor in tensors.values())),
        ThreadPoolExecutor(1) as thread,
    ):
        disk.write(path, hashed_parts(thread))
        disk.sync(path)
    return {"bytes": size, "sha256": digest.hexdigest()}


def _blocks(tensor: Tensor) -> Sequence[Tensor]:
    """Blocks of rows, which are copied from a GPU one by one."""
    rows = torch.atleast_1d(tensor)
    return torch.split(rows, max(1, _BLOCK * len(rows) // max(1, rows.nbytes)))


def tensor_bytes(
    tensors: Mapping[str, tuple[torch.dtype, Sequence[int]]],
    blocks: Callable[[str], Iterable[Tensor]],
) -> Iterator[disk.Bytes]:
    """The bytes of a safetensors file; only one block of rows is copied at a time."""
    # Wide numbers first, so that every tensor is aligned; then by name.
    order = sorted(tensors, key=lambda name: (-tensors[name][0].itemsize, name))
    words = {dtype: word for word, dtype in DTYPES.items()}
    entries, end = {}, 0
    for name in order:
        dtype, shape = tensors[name]
        start, end = end, end + math.prod(shape) * dtype.itemsize
        entries[name] = {"dtype": words[dtype], "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for name in order:
        for block in blocks(name):
            if block.numel():
                yield block.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def read_tensors(path: Path) -> dict[str, Tensor]:
    with read_errors(path):
        plain.check_file(path)
        tensors = load_file(path)
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES.values():
            raise RunError(f"{path}: {printable(name)} is {tensor.dtype}; not written by allneg")
    return tensors


def checksum(path: Path) -> dict[str, Any]:
    """The size and SHA-256 of a plain file."""
    with plain.open_file(path) as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return {"bytes": file.tell(), "sha256": digest}


def are_checksums(content: Any) -> bool:
    """Is this a table of file names and their checksums?"""
    return isinstance(content, dict) and all(
        isinstance(entry, dict)
        and {name: type(value) for name, value in entry.items()} == {"bytes": int, "sha256": str}
        for entry in content.values()
    )


def check_files(folder: Path, expected: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise a `RunError` that names the first file without its expected checksum."""
    # Most bytes are in a few files of about the same size; hashing releases Python's lock.
    with ThreadPoolExecutor() as threads:
        list(threads.map(_check_file, [folder / name for name in expected], expected.values()))


def _check_file(path: Path, recorded: Mapping[str, Any]) -> None:
    if not plain.exists(path):
        raise RunError(f"{path}: missing; the run is not complete")
    with read_errors(path):
        size = plain.check_file(path).st_size
        if size != recorded["bytes"]:
            raise RunError(f"{path}: {size:,} bytes instead of {recorded['bytes']}; damaged")
        digest = checksum(path)["sha256"]
    if digest != recorded["sha256"]:
        raise RunError(
            f"{path}: its SHA-256 is {digest[:12]}… instead of {recorded['sha256'][:12]}…;"
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
    try:
        plain.check_file(path)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        message = f"{path}: {error.strerror}, so it is not replaced; move it away"
        raise ResourceError(message) from None
