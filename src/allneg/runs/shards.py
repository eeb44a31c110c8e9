"""The files that hold a checkpoint's tensors: one a kind or, from several processes, one a shard.

Rows of entities are in the order of the files; all that is not a row of theirs is in the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from allneg.errors import RunError
from allneg.runs.files import read_json, read_tensors
from allneg.scoring.distributed import Group

_NAME = re.compile(r"(tables|optimizer|best)(?:-(\d+)-of-(\d+))?\.safetensors")
_ROWS = 1 << 14  # read at once


def file_name(kind: str, rows: Group) -> str:
    """The file that a process writes its part of a kind to."""
    if rows.size == 1:
        return f"{kind}.safetensors"
    return f"{kind}-{rows.rank + 1}-of-{rows.size}.safetensors"


def own_part(tensors: Mapping[str, Tensor], rows: Group) -> dict[str, Tensor]:
    """What a process writes: its rows; the first process also what all have in common."""
    return {name: each for name, each in tensors.items() if rows.rank == 0 or _is_split(name, each)}


def files_of(names: Iterable[str]) -> dict[str, list[str]]:
    """The files of each kind, in the order of their rows; nothing of a kind that is not whole."""
    found: dict[str, dict[int, str]] = {}
    counts: dict[str, set[int]] = {}
    for name in names:
        if match := _NAME.fullmatch(name):
            place, count = int(match[2] or 1), int(match[3] or 1)
            found.setdefault(match[1], {})[place] = name
            counts.setdefault(match[1], set()).add(count)
    return {
        kind: [parts[i] for i in sorted(parts)]
        for kind, parts in found.items()
        if counts[kind] == {len(parts)} and set(parts) == set(range(1, len(parts) + 1))
    }


def listed(where: Path) -> dict[str, list[str]]:
    """The files of each kind that a checkpoint's manifest has; others are not of it."""
    return files_of(read_json(where / "manifest.json"))


def read(where: Path, kind: str, span: tuple[int, int] | None = None) -> dict[str, Tensor]:
    """The tensors of a kind, joined; with a span, those rows of the entities alone.

    Empty where there are no files of that kind.
    """
    paths = [where / name for name in listed(where).get(kind, [])]
    if len(paths) == 1 and span is None:
        return read_tensors(paths[0])
    if not paths:
        return {}
    with opened(paths) as parts:
        return {name: part.read(span) for name, part in parts.items()}


@dataclass(frozen=True)
class Part:
    """One tensor, whose rows may be in several files."""

    name: str
    files: list[Any]  # open safetensors files that have rows of it, in order

    @property
    def shape(self) -> list[int]:
        shapes = [file.get_slice(self.name).get_shape() for file in self.files]
        return [sum(each[0] for each in shapes), *shapes[0][1:]] if shapes[0] else []

    @property
    def dtype(self) -> str:
        """As safetensors writes it: F32, I64, …"""
        return str(self.files[0].get_slice(self.name).get_dtype())

    def blocks(self, start: int = 0, stop: int | None = None) -> Iterator[Tensor]:
        """Its rows from `start` to `stop`, some at a time; a lone number as it is."""
        if not self.shape:
            yield self.files[0].get_tensor(self.name)
            return
        before = 0
        for file in self.files:
            rows = file.get_slice(self.name)
            n = rows.get_shape()[0]
            first = max(start - before, 0)
            last = n if stop is None else min(stop - before, n)
            for at in range(first, last, _ROWS):
                yield rows[at : min(at + _ROWS, last)]
            before += n

    def read(self, span: tuple[int, int] | None) -> Tensor:
        start, stop = span if span is not None and self.name.startswith("entities") else (0, None)
        out, at = None, 0
        for block in self.blocks(start, stop):
            if not block.dim():
                return block
            if out is None:
                n = (self.shape[0] if stop is None else min(stop, self.shape[0])) - start
                out = block.new_empty(n, *block.shape[1:])
            out[at : at + len(block)] = block
            at += len(block)
        return out if out is not None else self.files[0].get_tensor(self.name)[:0]


@contextmanager
def opened(paths: list[Path]) -> Iterator[dict[str, Part]]:
    """The tensors in some files, nothing of them read yet."""
    from safetensors import SafetensorError, safe_open

    with ExitStack() as stack:
        path = paths[0]
        parts: dict[str, Part] = {}
        try:
            for path in paths:
                file = stack.enter_context(safe_open(path, "pt"))
                for name in file.keys():  # noqa: SIM118 (it is no mapping)
                    parts.setdefault(name, Part(name, [])).files.append(file)
        except (OSError, SafetensorError) as error:
            raise RunError(f"{path}: not a whole safetensors file ({error}); damaged") from None
        yield parts


def _is_split(name: str, each: Tensor) -> bool:
    return name.startswith("entities") and each.dim() > 0
