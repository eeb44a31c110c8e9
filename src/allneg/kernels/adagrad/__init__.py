"""AdaGrad's step over a whole table, each number read and written once."""

from __future__ import annotations

from torch import Tensor

from allneg.kernels.choose import engine


def adagrad(
    table: Tensor,
    grad: Tensor,
    memory: Tensor,
    rate: Tensor,
    eps: float,
    rounded: Tensor | None = None,
) -> None:
    """memory += grad²; table -= rate · grad / (√memory + eps), in place; rounded = table.

    `rate` is a number on the table's device, so that a captured step can be told another.
    `rounded` is the table as bfloat16, where someone keeps it.
    """
    engine("adagrad", table.device).adagrad(table, grad, memory, rate, eps, rounded)
