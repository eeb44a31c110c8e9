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
        to_a, to_b = ctx.engine.gradients(grad, *ctx.saved_tensors, ctx.conjugate)
        _, a_asked, b_asked, _ = ctx.needs_input_grad
        return None, to_a if a_asked else None, to_b if b_asked else None, None
