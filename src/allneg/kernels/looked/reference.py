"""The definition of looking up and adding back, in plain PyTorch."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from allneg.kernels.powers.reference import slopes, sums


def look(
    table: Tensor, ids: Tensor, axes: int, power: int, sizes: Tensor | None
) -> tuple[Tensor, Tensor]:
    rows = F.embedding(ids, table)
    found = sums(rows, axes, power)
    return rows, found if sizes is None else sizes.add_(found)


def add_slopes(
    out: Tensor,
    table: Tensor,
    ids: Tensor,
    axes: int,
    power: int,
    weight: Tensor,
    rows: Tensor | None,
) -> None:
    more = slopes(weight, F.embedding(ids, table), axes, power)
    out.index_add_(0, ids, more if rows is None else more.add_(rows))
