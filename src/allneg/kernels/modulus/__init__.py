"""The sum of moduli of complex differences: RotatE's comparison."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.choose import compare, engine
from allneg.kernels.modulus import reference

__all__ = ["modulus", "reference"]


def modulus(query: Tensor, table: Tensor) -> Tensor:
    """Minus the sum over k of |q_k - e_k|, complex: (B, 2D), (N, 2D) -> (B, N).

    Rows hold D real parts, then D imaginary parts. A table (B, K, 2D) holds each query's own
    rows and gives (B, K). The (B, N, D) moduli are never stored whole. Where q_k = e_k, the
    gradient is 0.
    """
    if table.dim() == 3:
        re, im = (query.unsqueeze(1) - table).chunk(2, dim=-1)
        square = re.square() + im.square()
        # sqrt has an infinite slope at 0: step around it, in the value and in the gradient.
        safe = torch.where(square > 0, square, 1.0).sqrt()
        return -torch.where(square > 0, safe, 0.0).sum(-1)
    return compare(engine("modulus", query.device), query, table)
