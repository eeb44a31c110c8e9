"""Distances without a matrix product: `l1` (TransE) and `modulus` (RotatE)."""

from __future__ import annotations

import torch
from torch import Tensor

from allneg.kernels.base import Kernel
from allneg.kernels.distances import reference
from allneg.kernels.distances.reference import DistanceEngine
from allneg.kernels.engines import distance_engine


class Distance(Kernel):
    """score = -Σ_k |q_k - e_k|, real (`parts` 1) or complex (`parts` 2).

    Complex rows hold D real parts, then D imaginary parts. The (B, N, W) difference is never
    stored whole. Where two coordinates are equal, the gradient is 0.
    """

    def __init__(self, name: str, parts: int, engine: DistanceEngine | None = None) -> None:
        self.name = name  # type: ignore[misc]
        self.parts = parts
        self._engine = engine

    def bind(self, device: torch.device, bf16: bool = False) -> Distance:
        return Distance(self.name, self.parts, distance_engine(device))

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        if rows.dim() == 3:
            return -reference.moduli(query.unsqueeze(1) - rows, self.parts).sum(-1)
        query, rows, engine = self._prepared(query, rows)
        return engine.scores(query, rows, self.parts)

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if rows.dim() == 3:
            return _own_gradients(grad, query, rows, self.parts)
        query, rows, engine = self._prepared(query, rows)
        return engine.gradients(grad, query, rows, self.parts)

    def _prepared(self, query: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, DistanceEngine]:
        if query.dtype is torch.float64:
            return query, rows, reference  # the other engines compute in float32
        engine = self._engine or distance_engine(query.device)
        return query.float(), rows.float(), engine


def _own_gradients(grad: Tensor, query: Tensor, rows: Tensor, parts: int) -> tuple[Tensor, Tensor]:
    """Gradients with each query's own rows: (B, K), (B, W), (B, K, W) -> (B, W), (B, K, W)."""
    pull = query.unsqueeze(1) - rows
    size = reference.moduli(pull, parts)
    share = torch.where(size > 0, grad.unsqueeze(2) / size, 0.0)
    pull = (pull.unflatten(-1, (parts, -1)) * share.unsqueeze(2)).flatten(-2)
    return -pull.sum(1), pull


def fp32(rows: Tensor) -> Tensor:
    """The same rows in the dtype of the sums: float32 for bfloat16 and float16."""
    return rows.float() if rows.dtype in (torch.bfloat16, torch.float16) else rows


l1 = Distance("l1", parts=1)
modulus = Distance("modulus", parts=2)
