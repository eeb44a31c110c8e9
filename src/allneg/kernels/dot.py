"""The inner product of queries with rows: the kernel of DistMult, ComplEx and SimplE."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import torch
from torch import Tensor

from allneg.kernels.base import Kernel
from allneg.kernels.fused import transposed
from allneg.kernels.packed import product

_LOCK = threading.Lock()
_EARLIER: list[str] = []  # PyTorch's setting, once per thread that rounds


class Dot(Kernel):
    """score = q · e. bfloat16 operands give float32 scores and gradients.

    A table from `packed` gives scores only.
    """

    name = "dot"

    def bind(self, device: torch.device, bf16: bool = False) -> Dot:
        return rounded_dot if bf16 and device.type == "cpu" else self

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        if rows.is_mkldnn:
            return product(query, rows)
        if rows.dim() == 3:
            return torch.einsum("bw,bkw->bk", query, rows)
        return _mm(query, rows.T)

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        if rows.dim() == 3:
            return torch.einsum("bk,bkw->bw", grad, rows), grad.unsqueeze(2) * query.unsqueeze(1)
        grad = grad.to(query.dtype)
        if query.device.type == "cuda" and query.dtype is torch.float32:
            # A TF32 product is a third faster when its summed axis is contiguous in both operands.
            return grad @ rows, grad.T @ transposed(query).T
        return _mm(grad, rows), _mm(grad.T, query)


class RoundedDot(Dot):
    """`dot` on a CPU whose products round float32 operands to bfloat16; the sums are float32.

    oneDNN rounds while it reads. PyTorch has only a setting of the whole process for this: other
    threads that compute products at the same time round, too.
    """

    def scores(self, query: Tensor, rows: Tensor) -> Tensor:
        with _rounded_products():
            return super().scores(query, rows)

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        with _rounded_products():
            return super().gradients(grad, query, rows)


class DotOfSome(Dot):
    """`dot` whose gradients are those of some rows (k,), and 0 for all others, of a whole table.

    With few such rows, this is half of the work.
    """

    def __init__(self, some: Tensor) -> None:
        self._some = some

    def gradients(
        self, grad: Tensor, query: Tensor, rows: Tensor, scores: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        grad = grad.to(query.dtype)
        d_some = _mm(grad[:, self._some].T, query)
        d_rows = d_some.new_zeros(len(rows), d_some.shape[1])
        return _mm(grad, rows), d_rows.index_copy_(0, self._some, d_some)


def _mm(a: Tensor, b: Tensor) -> Tensor:
    if a.dtype is not torch.bfloat16:
        return a @ b
    if a.device.type == "cuda":
        return torch.mm(a, b, out_dtype=torch.float32)
    # Elsewhere PyTorch rounds a bfloat16 product to bfloat16.
    return a.float() @ b.float()


def has_fast_bf16() -> bool:
    """Whether this CPU multiplies bfloat16 matrices (Intel AMX), and oneDNN uses it."""
    return torch.backends.mkldnn.is_available() and torch.cpu._is_amx_tile_supported()


@contextlib.contextmanager
def _rounded_products() -> Iterator[None]:
    products = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with _LOCK:
        _EARLIER.append(_EARLIER[0] if _EARLIER else products.fp32_precision)
        products.fp32_precision = "bf16"
    try:
        yield
    finally:
        with _LOCK:
            earlier = _EARLIER.pop()
            if not _EARLIER:
                products.fp32_precision = earlier


dot = Dot()
rounded_dot = RoundedDot()
