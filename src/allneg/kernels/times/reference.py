"""The definition of the complex product, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def times(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    (a_re, a_im), (b_re, b_im) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    if conjugate:
        return torch.cat([a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im], dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)


def gradients(grad: Tensor, a: Tensor, b: Tensor, conjugate: bool) -> tuple[Tensor, Tensor]:
    # The slope of a·b is g·b* for a and g·a* for b; that of a·b* is g·b and (g·a*)* = a·g*.
    to_b = times(a, grad, True) if conjugate else times(grad, a, True)
    return times(grad, b, not conjugate), to_b
