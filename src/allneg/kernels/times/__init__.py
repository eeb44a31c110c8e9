"""The product of complex rows: ComplEx's and RotatE's query, in one pass."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from allneg.kernels.choose import engine


def times(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """a · b coordinate by coordinate, or a · b*, of rows of real then imaginary parts: (B, 2D)."""
    out: Tensor = _Times.apply(engine("times", a.device), a, b, conjugate)  # type: ignore[no-untyped-call]
    return out


class _Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: ModuleType, a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
        ctx.engine, ctx.conjugate = engine, conjugate
        ctx.save_for_backward(a, b)
        out: Tensor = engine.times(a, b, conjugate)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor | None, Tensor | None, None]:
        a, b = ctx.saved_tensors
        _, to_a, to_b, _ = ctx.needs_input_grad
        # The slope of a·b is g·b* for a and g·a* for b; that of a·b* is g·b and (g·a*)* = a·g*.
        grad_a = ctx.engine.times(grad, b, not ctx.conjugate) if to_a else None
        grad_b = None
        if to_b:
            grad_b = (
                ctx.engine.times(a, grad, True)
                if ctx.conjugate
                else ctx.engine.times(grad, a, True)
            )
        return None, grad_a, grad_b, None
