"""The base class of kernels: scores of queries with rows, and their gradients."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar

import torch
from torch import Tensor


class Kernel(ABC):
    """Compares query vectors with entity rows.

    `rows` is a table (N, W), compared with every query, or has separate rows per query
    (B, K, W). Training calls `scores` and `gradients`; calling the kernel itself,
    `kernel(query, rows)`, gives scores that autograd can differentiate.
    """

    name: ClassVar[str]
    keeps_scores: ClassVar[bool] = False  # `gradients` needs the scores, before they are changed

    @abstractmethod
    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        """(B, W), (N, W) -> (B, N), or (B, W), (B, K, W) -> (B, K)."""

    @abstractmethod
    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """From d/d scores to d/d query and d/d rows."""

    def bind(self, device: torch.device, bf16: bool = False) -> Kernel:
        """The same kernel with its engine chosen once for `device`, and its rounding on a CPU."""
        return self

    def __call__(self, query: Tensor, rows: Tensor) -> Tensor:
        out: Tensor = _Scores.apply(self, query, rows)  # type: ignore[no-untyped-call]
        return out


class _Scores(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, kernel: Kernel, query: Tensor, rows: Tensor) -> Tensor:
        scores = kernel.scores(query, rows)
        ctx.kernel = kernel
        ctx.save_for_backward(query, rows, scores if kernel.keeps_scores else None)
        return scores

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        query, rows, scores = ctx.saved_tensors
        d_query, d_rows = ctx.kernel.gradients(grad, query, rows, scores)
        return None, d_query.to(query.dtype), d_rows.to(rows.dtype)
