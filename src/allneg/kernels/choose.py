"""Which engine runs a kernel, and how autograd meets it."""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any

import torch
from torch import Tensor


def engine(kernel: str, device: torch.device) -> ModuleType:
    """The module that runs `kernel` on `device`: it has `scores` and `gradients`."""
    return importlib.import_module(f"allneg.kernels.{kernel}.reference")


def compare(engine: ModuleType, query: Tensor, table: Tensor) -> Tensor:
    """Scores of every query with every row by `engine`, differentiable once."""
    out: Tensor = _Compare.apply(engine, query, table)  # type: ignore[no-untyped-call]
    return out


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: ModuleType, query: Tensor, table: Tensor) -> Tensor:
        ctx.engine = engine
        ctx.save_for_backward(query, table)
        out: Tensor = engine.scores(query, table)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        query, table = ctx.saved_tensors
        to_query, to_table = ctx.engine.gradients(grad, query, table)
        return None, to_query.to(query.dtype), to_table.to(table.dtype)
