"""Tensors as the bytes of a safetensors file, without a second copy of them in memory."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from allneg.runs.disk import Bytes

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
}
_WIDTHS = {name: dtype.itemsize for dtype, name in _NAMES.items()}  # bytes a number
_ALIGNED = 8


def parts(tensors: Mapping[str, Tensor]) -> Iterator[Bytes]:
    """The header with its length, then each tensor's bytes.

    safetensors' own `save_file` neither syncs nor leaves the usual permissions, replaces links
    and devices, and drops files of its own beside the target when it is killed.
    """
    kinds = {name: (_NAMES[each.dtype], tuple(each.shape)) for name, each in tensors.items()}
    order, head = header(kinds)
    yield head
    for name in order:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        if len(flat):
            yield flat.view(torch.uint8).numpy().data


def header(kinds: Mapping[str, tuple[str, Sequence[int]]]) -> tuple[list[str], bytes]:
    """From each tensor's dtype, as safetensors has it, and shape: their order and what precedes."""
    # Wide numbers first keeps every tensor aligned; within a width, by name.
    order = sorted(kinds, key=lambda name: (-_WIDTHS[kinds[name][0]], name))
    said, end = {}, 0
    for name in order:
        dtype, shape = kinds[name]
        start, end = end, end + math.prod(shape) * _WIDTHS[dtype]
        said[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(said, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    return order, len(text).to_bytes(8, "little") + text
