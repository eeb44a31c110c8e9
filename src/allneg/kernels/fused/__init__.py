"""Operations of a training step. With Triton, each takes one pass over memory."""

import os
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from allneg.kernels import engines
from allneg.kernels.fused import reference, softmax
from allneg.kernels.fused.reference import mask_out, put

__all__ = [
    "adagrad",
    "complex_mul",
    "count_ranks",
    "exp_weights",
    "log_sum_exp",
    "mask_out",
    "power_gradients",
    "put",
    "scatter_add",
    "softmax_gradient",
    "subtract_at",
    "transposed",
    "values_at",
]


def _engine(device: torch.device) -> ModuleType:
    if device.type == "cpu" and os.environ.get("TRITON_INTERPRET") != "1":
        return reference
    return engines.triton_engine("fused", device)


def describe_products(device: torch.device) -> str:
    """How products and the softmax of their scores are computed on a device."""
    if device.type != "cpu":
        return "matrix products"
    how = "in C" if softmax.library() else "in PyTorch; with a C compiler, it is faster"
    return f"matrix products ({torch.backends.cpu.get_cpu_capability()}), softmax {how}"


def complex_mul(a: Tensor, b: Tensor, conjugate: bool = False) -> Tensor:
    """a · b per coordinate, or a · b*, of rows of real then imaginary parts: (B, 2D)."""
    engine = _engine(a.device)
    if engine is reference:
        return reference.complex_mul(a, b, conjugate)
    out: Tensor = _ComplexMul.apply(engine, a, b, conjugate)  # type: ignore[no-untyped-call]
    return out


class _ComplexMul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: ModuleType, a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
        ctx.engine, ctx.conjugate = engine, conjugate
        ctx.save_for_backward(a, b)
        out: Tensor = engine.complex_mul(a, b, conjugate)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, None]:
        d_a, d_b = ctx.engine.complex_mul_gradients(grad, *ctx.saved_tensors, ctx.conjugate)
        return None, d_a, d_b, None


def power_gradients(
    factor: Tensor, grad: Tensor, power: int, weight: float | Tensor, out: Tensor, add: bool
) -> None:
    """Add `weight` · Σ_k |x_k|^power of each row to `out`; write or add its gradient to `grad`.

    `factor` and `grad` are (B, axes, D), maybe views of wider rows; `power` is at least 2. |x_k| is
    the norm over the axes. The gradient at 0 is 0. A tensor has a weight for each row.
    """
    _engine(factor.device).power_gradients(factor, grad, power, weight, out, add)


def transposed(x: Tensor) -> Tensor:
    """The transpose in memory: (B, W) -> (W, B), contiguous."""
    out: Tensor = _engine(x.device).transposed(x)
    return out


def scatter_add(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    """table[ids] += rows in place; ids that occur twice are added twice: (N, W), (B,), (B, W)."""
    _engine(table.device).scatter_add(table, ids, rows)


def log_sum_exp(scores: Tensor, target: Tensor, count: int) -> Tensor:
    """Each row's score at its target, and log Σ exp of the others: (B, N), (B,) -> (2, B).

    Columns from `count` on are left out. A target outside the columns has the score -inf, and so
    does an empty sum. The scores may be overwritten.
    """
    out: Tensor = _engine(scores.device).log_sum_exp(scores, target, count)
    return out


def softmax_gradient(
    scores: Tensor, target: Tensor, count: int, state: Tensor, weight: Tensor, bf16: bool = False
) -> Tensor:
    """weight · d/d scores of log(exp total + exp answer) - answer: (B, N).

    `state` are answers and totals, as `log_sum_exp` gives them. Columns from `count` on get 0. The
    result replaces the scores, or is a new bfloat16 tensor.
    """
    engine = _engine(scores.device)
    out: Tensor = engine.softmax_gradient(scores, target, count, state, weight, bf16)
    return out


def exp_weights(scores: Tensor, total: Tensor, weight: Tensor) -> Tensor:
    """weight · exp(scores - total), in place of the scores: (B, N), (B,), (B,) -> (B, N).

    A total of -inf, for an empty row, counts as 0.
    """
    none = torch.full((len(scores),), -1, device=scores.device)  # no target
    finite = torch.where(total > -torch.inf, total, 0.0)
    state = torch.stack([torch.full_like(total, -torch.inf), finite])
    return softmax_gradient(scores, none, scores.shape[1], state, weight)


def values_at(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
    """The scores at some queries and columns, 0 where there is no such column: (B, N) -> (A,)."""
    out: Tensor = _engine(scores.device).values_at(scores, query, column)
    return out


def subtract_at(scores: Tensor, query: Tensor, column: Tensor, values: Tensor) -> None:
    """scores[query, column] -= values, where there is such a column; no pair with a value twice."""
    _engine(scores.device).subtract_at(scores, query, column, values)


def count_ranks(
    scores: Tensor, answer: Tensor, tolerance: Tensor | None = None, row: Tensor | None = None
) -> Tensor:
    """Scores above each answer in its row, and scores equal to it: (B, N), (A,) -> int64 (A, 2).

    `row` (A,) is that of each answer; without it, each row has one. With `tolerance` (A,), scores
    within that distance of the answer are equal.
    """
    out: Tensor = _engine(scores.device).count_ranks(scores, answer, tolerance, row)
    return out


def adagrad(
    table: Tensor, grad: Tensor, squares: Tensor, rate: Tensor, eps: float, bf16_copy: Tensor | None
) -> None:
    """squares += grad²; table -= rate · grad / (√squares + eps), in place; bf16_copy = table.

    `rate` is a tensor on the table's device, so that a captured step can change it.
    """
    _engine(table.device).adagrad(table, grad, squares, rate, eps, bf16_copy)
