"""The definition of the sum of powers and its slope, in plain PyTorch."""

from __future__ import annotations

from torch import Tensor


def sums(rows: Tensor, axes: int, power: int) -> Tensor:
    squares = _squares(rows, axes)
    # The cube by a root: a general power takes several times as long.
    return squares.sum(1) if power == 2 else (squares * squares.sqrt()).sum(1)


def slopes(grad: Tensor, rows: Tensor, axes: int, power: int) -> Tensor:
    weight = (power * grad).unsqueeze(1)
    if power == 3:
        weight = (weight * _squares(rows, axes).sqrt()).repeat(1, axes)
    return weight * rows


def _squares(rows: Tensor, axes: int) -> Tensor:
    squares: Tensor = rows.square().unflatten(1, (axes, -1)).sum(1)
    return squares
