"""The tensor files of a checkpoint: one per kind or, from several processes, one per shard.

Entity rows are in the order of the files. Everything that is not split by rows is in the first.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from allneg.errors import RunError, printable
from allneg.runs import plain
from allneg.runs.disk import Bytes
from allneg.runs.files import DTYPES, read_errors, read_tensors, tensor_bytes
from allneg.scoring.distributed import Group

_NAME = re.compile(r"(tables|optimizer|best)(?:-(\d+)-of-(\d+))?\.safetensors")
_BLOCK_ROWS = 1 << 14  # rows read at once


def file_name(kind: str, rows: Group) -> str:
    """The file that a process writes its shard of a kind to."""
    if rows.size == 1:
        return f"{kind}.safetensors"
    return f"{kind}-{rows.rank + 1}-of-{rows.size}.safetensors"


def own_part(tensors: Mapping[str, Tensor], rows: Group) -> dict[str, Tensor]:
    """What a process writes: its entity rows and, in the first process, everything else."""
    return {
        name: tensor
        for name, tensor in tensors.items()
        if rows.rank == 0 or (name.startswith("entities") and tensor.dim() > 0)
    }


def files_of(names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each kind, in the order of their rows, without kinds that miss a shard."""
    shards: dict[str, dict[tuple[int, int], str]] = {}  # by number and total
    for name in names:
        if match := _NAME.fullmatch(name):
            shards.setdefault(match[1], {})[int(match[2] or 1), int(match[3] or 1)] = name
    return {
        kind: [found[key] for key in sorted(found)]
        for kind, found in shards.items()
        if sorted(found) == [(number, len(found)) for number in range(1, len(found) + 1)]
    }


def read(paths: list[Path], span: tuple[int, int] | None = None) -> dict[str, Tensor]:
    """The tensors in some files, joined; with a span, only those rows of the entities."""
    if len(paths) == 1 and span is None:
        return read_tensors(paths[0])
    with opened(paths) as tensors:
        return {
            name: tensor.read(span if name.startswith("entities") else None)
            for name, tensor in tensors.items()
        }


@dataclass(frozen=True)
class StoredTensor:
    """One tensor, whose rows may be in several files."""

    name: str
    files: list[Any]  # open safetensors files that hold its rows, in order

    @property
    def shape(self) -> list[int]:
        shapes = [file.get_slice(self.name).get_shape() for file in self.files]
        return [sum(shape[0] for shape in shapes), *shapes[0][1:]] if shapes[0] else []

    @property
    def dtype(self) -> torch.dtype:
        return DTYPES[self.files[0].get_slice(self.name).get_dtype()]

    @property
    def is_consistent(self) -> bool:
        """Do the files agree on a type that is read, and on the shape of a row?"""
        parts = [file.get_slice(self.name) for file in self.files]
        kinds = {(part.get_dtype(), tuple(part.get_shape()[1:])) for part in parts}
        are_rows = len(parts) == 1 or all(part.get_shape() for part in parts)
        return are_rows and len(kinds) == 1 and next(iter(kinds))[0] in DTYPES

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Tensor]:
        """The rows from `start` to `stop` in blocks; a scalar as it is."""
        if not self.shape:
            yield self.files[0].get_tensor(self.name)
            return
        before = 0
        for file in self.files:
            rows = file.get_slice(self.name)
            count = rows.get_shape()[0]
            last = count if stop is None else min(stop - before, count)
            for row in range(max(start - before, 0), last, _BLOCK_ROWS):
                yield rows[row : min(row + _BLOCK_ROWS, last)]
            before += count

    def read(self, span: tuple[int, int] | None) -> Tensor:
        """The rows of a span, or all, in one tensor, without a second copy of them."""
        if not self.shape:
            return next(self.blocks())
        start, stop = span or (0, self.shape[0])
        size = max(0, min(stop, self.shape[0]) - start)
        out, row = torch.empty(size, *self.shape[1:], dtype=self.dtype), 0
        for block in self.blocks(start, stop):
            out[row : row + len(block)] = block
            row += len(block)
        return out


@contextmanager
def opened(paths: Iterable[Path]) -> Iterator[dict[str, StoredTensor]]:
    """The tensors in some files; nothing of them is read yet."""
    tensors: dict[str, StoredTensor] = {}
    with ExitStack() as stack:
        for path in paths:
            with read_errors(path):
                plain.check_file(path)
                file = stack.enter_context(safe_open(path, "pt"))
            for name in file.keys():  # noqa: SIM118 (not a mapping)
                tensor = tensors.setdefault(name, StoredTensor(name, []))
                tensor.files.append(file)
                if not tensor.is_consistent:
                    raise RunError(f"{path}: {printable(name)} has a type or shape of another run")
        yield tensors


def joined_bytes(tensors: Mapping[str, StoredTensor]) -> Iterator[Bytes]:
    """The bytes of one safetensors file with all rows."""
    about = {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()}
    return tensor_bytes(about, lambda name: tensors[name].blocks())
