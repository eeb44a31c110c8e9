"""Rows looked up together with their size, and gradients added together with its slope.

The size is `power_sums`: Σ_k |x_k|^power of a row with so many axes, power 2 or 3.
"""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def look(
    table: Tensor, ids: Tensor, axes: int, power: int, sizes: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """table[ids], and the size of each, added to `sizes` in place: (N, W), (B,) -> (B, W), (B,)."""
    found: tuple[Tensor, Tensor] = engine("looked", table.device).look(
        table, ids, axes, power, sizes
    )
    return found


def add_slopes(
    out: Tensor,
    table: Tensor,
    ids: Tensor,
    axes: int,
    power: int,
    weight: Tensor,
    rows: Tensor | None,
) -> None:
    """out[ids] += rows + weight · d size / d table[ids], in place, each id as often as it occurs.

    (N, W), (N, W), (B,), a weight a row (B,), rows (B, W).
    """
    engine("looked", out.device).add_slopes(out, table, ids, axes, power, weight, rows)
