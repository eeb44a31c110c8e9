"""The definition of the complex product, in plain PyTorch."""

from __future__ import annotations

import torch
from torch import Tensor


def times(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    (a_re, a_im), (b_re, b_im) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    if conjugate:
        return torch.cat([a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im], dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)
