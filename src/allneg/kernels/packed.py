"""A table packed for products with few queries at a time, by oneDNN.

A product of 8 queries with an ordinary table spends most of its time reordering the table. With a
packed table it takes a third of the CPU time, and scores do not depend on the number of queries.
"""

import platform

import torch
from torch import Tensor

_FEW = 8  # the number of queries that the layout is optimised for; other numbers work as well
_MOST = 1 << 30  # bytes; larger tables are not copied


def can_pack() -> bool:
    """Whether PyTorch has oneDNN here, for a processor on which it was tested."""
    return torch.backends.mkldnn.is_available() and platform.machine() in ("x86_64", "AMD64")


def packed(table: Tensor) -> Tensor | None:
    """A copy of a float32 table (N, W) that `dot` accepts instead; None if unsupported."""
    small = 0 < table.numel() * table.element_size() <= _MOST
    plain = table.device.type == "cpu" and table.dtype == torch.float32
    if not (can_pack() and small and plain):
        return None
    with torch.no_grad():
        out: Tensor = torch.ops.mkldnn._reorder_linear_weight(table.detach().contiguous(), _FEW)
    return out


def product(query: Tensor, table: Tensor) -> Tensor:
    """The inner product of every query with every row of a packed table: (B, W) -> (B, N)."""
    if not len(query):
        return query.new_empty(0, table.shape[0])
    out: Tensor = torch.ops.mkldnn._linear_pointwise(query, table, None, "none", [], "")
    return out
