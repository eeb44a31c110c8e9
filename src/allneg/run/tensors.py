"""Tensors as the bytes of a safetensors file, without a second copy of them in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from allneg.run.disk import Part

_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
}
_ALIGNED = 8


def parts(tensors: Mapping[str, Tensor]) -> Iterator[Part]:
    """The length of the header, the header, then each tensor's bytes.

    safetensors' own `save_file` neither syncs nor leaves the usual permissions, replaces links
    and devices, and drops files of its own beside the target when it is killed.
    """
    # Wide numbers first keeps every tensor aligned; within a width, by name.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header, end = {}, 0
    for name in order:
        start, end = end, end + tensors[name].nbytes
        header[name] = {
            "dtype": _NAMES[tensors[name].dtype],
            "shape": list(tensors[name].shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    yield len(text).to_bytes(8, "little")
    yield text
    for name in order:
        flat = tensors[name].detach().cpu().contiguous().reshape(-1)
        if len(flat):
            yield flat.view(torch.uint8).numpy().data
