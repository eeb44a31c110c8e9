"""How large rows are: a sum of powers of moduli, as penalties take it, in one pass."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from allneg.kernels.choose import engine


def power_sums(rows: Tensor, axes: int, power: int) -> Tensor:
    """Σ_k |x_k|^power of each row, power 2 or 3: (B, axes · D) -> (B,).

    With 2 axes a row holds real parts, then imaginary parts. The slope at 0 is 0.
    """
    out: Tensor = _PowerSums.apply(engine("powers", rows.device), rows, axes, power)  # type: ignore[no-untyped-call]
    return out


class _PowerSums(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: ModuleType, rows: Tensor, axes: int, power: int) -> Tensor:
        ctx.engine, ctx.kind = engine, (axes, power)
        ctx.save_for_backward(rows)
        out: Tensor = engine.sums(rows, axes, power)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, None, None]:
        (rows,) = ctx.saved_tensors
        return None, ctx.engine.slopes(grad, rows, *ctx.kind), None, None
