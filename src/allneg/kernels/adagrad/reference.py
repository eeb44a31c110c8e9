"""The definition of AdaGrad's step, in plain PyTorch."""

from __future__ import annotations

from torch import Tensor


def adagrad(
    table: Tensor, grad: Tensor, memory: Tensor, rate: Tensor, eps: float, rounded: Tensor | None
) -> None:
    memory.addcmul_(grad, grad)
    table.sub_(rate * grad / (memory.sqrt() + eps))
    if rounded is not None:
        rounded.copy_(table)
