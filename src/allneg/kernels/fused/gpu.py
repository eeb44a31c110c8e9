"""The fused operations in Triton: every number is read once and written once.

Widths known at compile time let the compiler load 16 bytes at once.
"""

# mypy: disable-error-code="untyped-decorator,no-untyped-def"
import torch
import triton
import triton.language as tl
from torch import Tensor

from allneg.kernels.fused import reference

# Block sizes and warps are the fastest of those tried on an H200 with ComplEx, rank 1000.
_COORDINATES = 512  # per program, of complex products and powers
_COLUMNS = 1024  # of scores per block
_PART = 4096  # columns per program where a row is split over several
_MANY_ROWS = 512  # with fewer rows, a row is split over several programs to fill the GPU
_NUMBERS = 1024  # of a table per program, in AdaGrad


def complex_mul(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    a, b = a.contiguous(), b.contiguous()
    out = torch.empty_like(a)
    if out.numel():
        dim = a.shape[1] // 2
        _complex_mul[(len(a), triton.cdiv(dim, _COORDINATES))](
            a, b, out, DIM=dim, CONJUGATE=conjugate, BLOCK=_COORDINATES, num_warps=4
        )
    return out


def complex_mul_gradients(
    grad: Tensor, a: Tensor, b: Tensor, conjugate: bool
) -> tuple[Tensor, Tensor]:
    grad, a, b = grad.contiguous(), a.contiguous(), b.contiguous()
    d_a, d_b = torch.empty_like(a), torch.empty_like(b)
    if grad.numel():
        dim = a.shape[1] // 2
        _complex_mul_gradients[(len(a), triton.cdiv(dim, _COORDINATES))](
            grad, a, b, d_a, d_b, DIM=dim, CONJUGATE=conjugate, BLOCK=_COORDINATES, num_warps=4
        )
    return d_a, d_b


def power_gradients(
    factor: Tensor, grad: Tensor, power: int, weight: float | Tensor, out: Tensor, add: bool
) -> None:
    b, axes, dim = factor.shape
    plain = factor.stride(2) == 1 and grad.stride() == factor.stride() and factor.numel()
    if not plain or power not in (2, 3):
        reference.power_gradients(factor, grad, power, weight, out, add)
        return
    _power_gradients[(b,)](
        factor, grad, weight, out, OWN=isinstance(weight, Tensor), ROW=factor.stride(0),
        AXIS=factor.stride(1), DIM=dim, AXES=axes, POWER=power, ADD=add, BLOCK=_COORDINATES,
        num_warps=8,
    )  # fmt: skip


def transposed(x: Tensor) -> Tensor:
    b, width = x.shape
    out = x.new_empty(width, b)
    grid = (triton.cdiv(b, 64), triton.cdiv(width, 64))
    _transposed[grid](x.contiguous(), out, b, width, BLOCK=64, num_warps=4)
    return out


def scatter_add(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    if torch.are_deterministic_algorithms_enabled() or not rows.numel():
        reference.scatter_add(table, ids, rows)
        return
    b, width = rows.shape
    grid = (b, triton.cdiv(width, 1024))
    _scatter_add[grid](table, ids, rows.contiguous(), width, BLOCK=1024, num_warps=4)


def log_sum_exp(scores: Tensor, target: Tensor, count: int) -> Tensor:
    b, n = scores.shape
    n = min(n, max(count, 0))
    parts = 1 if b >= _MANY_ROWS else max(1, triton.cdiv(n, _PART))
    # Each program sums one row, or one part of a row; PyTorch adds the few parts.
    out = torch.empty(1 + parts, b, dtype=torch.float32, device=scores.device)
    if b:
        width = triton.cdiv(n, parts)
        _log_sum_exp[(b, parts)](
            scores, target, out, n, width, scores.stride(0), b, BLOCK=_COLUMNS, num_warps=4
        )
    return out if parts == 1 else torch.stack([out[0], out[1:].logsumexp(0)])


def softmax_gradient(
    scores: Tensor, target: Tensor, count: int, state: Tensor, weight: Tensor, bf16: bool
) -> Tensor:
    b, n = scores.shape
    out = torch.empty_like(scores, dtype=torch.bfloat16) if bf16 else scores
    if n:
        _softmax_gradient[(b, triton.cdiv(n, _COLUMNS))](
            scores, out, target, state.contiguous(), weight.contiguous(), n, count, b,
            scores.stride(0), out.stride(0), BLOCK=_COLUMNS, num_warps=4,
        )  # fmt: skip
    return out


def values_at(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
    out = torch.empty(len(query), dtype=torch.float32, device=scores.device)
    _at_pairs(scores, query, column, out, SUBTRACT=False)
    return out


def subtract_at(scores: Tensor, query: Tensor, column: Tensor, values: Tensor) -> None:
    _at_pairs(scores, query, column, values.contiguous(), SUBTRACT=True)


def _at_pairs(
    scores: Tensor, query: Tensor, column: Tensor, values: Tensor, SUBTRACT: bool
) -> None:
    if len(query):
        _at[(triton.cdiv(len(query), 128),)](
            scores, query.contiguous(), column.contiguous(), values, len(query), *scores.shape[1:],
            *scores.stride(), SUBTRACT=SUBTRACT, BLOCK=128, num_warps=4,
        )  # fmt: skip


def count_ranks(
    scores: Tensor, answer: Tensor, tolerance: Tensor | None, row: Tensor | None
) -> Tensor:
    out = torch.empty(len(answer), 2, dtype=torch.int64, device=scores.device)
    if len(answer):
        width = answer if tolerance is None else tolerance.contiguous()
        _count_ranks[(len(answer),)](
            scores, answer.contiguous(), width, out if row is None else row.contiguous(), out,
            scores.shape[1], scores.stride(0), TOLERANT=tolerance is not None,
            ONE_PER_ROW=row is None, BLOCK=_COLUMNS, num_warps=4,
        )  # fmt: skip
    return out


def adagrad(
    table: Tensor, grad: Tensor, squares: Tensor, rate: Tensor, eps: float, bf16_copy: Tensor | None
) -> None:
    n = table.numel()
    if n:
        _adagrad[(triton.cdiv(n, _NUMBERS),)](
            table, grad.contiguous(), squares, rate, eps,
            table if bf16_copy is None else bf16_copy, n,
            COPY=bf16_copy is not None, BLOCK=_NUMBERS, num_warps=4,
        )  # fmt: skip


@triton.jit
def _complex_mul(a, b, out, DIM: tl.constexpr, CONJUGATE: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < DIM
    re = tl.program_id(0).to(tl.int64) * (2 * DIM) + column
    im = re + DIM
    a_re, a_im = tl.load(a + re, mask=inside), tl.load(a + im, mask=inside)
    b_re, b_im = tl.load(b + re, mask=inside), tl.load(b + im, mask=inside)
    if CONJUGATE:
        b_im = -b_im
    tl.store(out + re, a_re * b_re - a_im * b_im, mask=inside)
    tl.store(out + im, a_re * b_im + a_im * b_re, mask=inside)


@triton.jit
def _complex_mul_gradients(
    grad, a, b, d_a, d_b, DIM: tl.constexpr, CONJUGATE: tl.constexpr, BLOCK: tl.constexpr
):
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < DIM
    re = tl.program_id(0).to(tl.int64) * (2 * DIM) + column
    im = re + DIM
    g_re, g_im = tl.load(grad + re, mask=inside), tl.load(grad + im, mask=inside)
    a_re, a_im = tl.load(a + re, mask=inside), tl.load(a + im, mask=inside)
    b_re, b_im = tl.load(b + re, mask=inside), tl.load(b + im, mask=inside)
    if CONJUGATE:
        b_im = -b_im
    # Of a·b: g·b* for a and g·a* for b. Where b* replaced b, its gradient is conjugated too.
    tl.store(d_a + re, g_re * b_re + g_im * b_im, mask=inside)
    tl.store(d_a + im, g_im * b_re - g_re * b_im, mask=inside)
    d_im = g_im * a_re - g_re * a_im
    if CONJUGATE:
        d_im = -d_im
    tl.store(d_b + re, g_re * a_re + g_im * a_im, mask=inside)
    tl.store(d_b + im, d_im, mask=inside)


@triton.jit
def _power_gradients(
    factor, grad, weight, out, OWN: tl.constexpr, ROW: tl.constexpr, AXIS: tl.constexpr,
    DIM: tl.constexpr, AXES: tl.constexpr, POWER: tl.constexpr, ADD: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    if OWN:  # each row has a weight
        weight = tl.load(weight + row)
    total = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, DIM, BLOCK):
        column = first + tl.arange(0, BLOCK)
        inside = column < DIM
        offset = row * ROW + column
        squares = tl.zeros((BLOCK,), tl.float32)
        for axis in tl.static_range(AXES):
            x = tl.load(factor + offset + axis * AXIS, mask=inside, other=0.0)
            squares += x * x
        slope = POWER * weight
        if POWER == 3:
            roots = tl.sqrt(squares)
            total += squares * roots
            slope = slope * roots
        else:
            total += squares
        for axis in tl.static_range(AXES):
            x = tl.load(factor + offset + axis * AXIS, mask=inside, other=0.0)
            g = slope * x
            if ADD:
                g += tl.load(grad + offset + axis * AXIS, mask=inside, other=0.0)
            tl.store(grad + offset + axis * AXIS, g, mask=inside)
    tl.store(out + row, tl.load(out + row) + weight * tl.sum(total, 0))


@triton.jit
def _transposed(x, out, b, width, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)[None, :]
    inside = (row < b) & (column < width)
    values = tl.load(x + row.to(tl.int64) * width + column, mask=inside)
    tl.store(out + column.to(tl.int64) * b + row, values, mask=inside)


@triton.jit
def _scatter_add(table, ids, rows, width, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    target = tl.load(ids + row) * width + column
    values = tl.load(rows + row * width + column, mask=inside)
    tl.atomic_add(table + target, values, mask=inside, sem="relaxed")


@triton.jit
def _log_sum_exp(scores, target, out, n, width, stride, rows, BLOCK: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    own = tl.load(target + row)
    # Each lane keeps the largest score it met, and the sum of exp of the others minus that.
    most = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    end = tl.minimum((part + 1) * width, n)
    for first in range(part * width, end, BLOCK):
        column = first + tl.arange(0, BLOCK)
        counts = (column < end) & (column != own)
        values = tl.load(scores + row * stride + column, mask=counts, other=float("-inf"))
        higher = tl.maximum(most, values)
        anchor = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(most - anchor) + tl.exp(values - anchor)
        most = higher
    top = tl.max(most, 0)
    anchor = tl.where(top == float("-inf"), 0.0, top)
    total = tl.sum(total * tl.exp(most - anchor), 0)
    tl.store(out + (1 + part) * rows + row, tl.log(total) + anchor)
    if part == 0:
        inside = (own >= 0) & (own < n)
        found = tl.load(scores + row * stride + own, mask=inside, other=float("-inf"))
        tl.store(out + row, found)


@triton.jit
def _softmax_gradient(
    scores, out, target, state, weight, n, count, rows, stride, out_stride, BLOCK: tl.constexpr
):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    column = part * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(scores + row * stride + column, mask=column < n, other=float("-inf"))
    a, others = tl.load(state + row), tl.load(state + rows + row)
    its_weight = tl.load(weight + row)
    log_sum = tl.maximum(others, a) + tl.log(1.0 + tl.exp(-tl.abs(others - a)))
    grad = tl.exp(values - log_sum) * its_weight
    of_answer = -its_weight / (1.0 + tl.exp(a - others))
    grad = tl.where(column == tl.load(target + row), of_answer, grad)
    grad = tl.where(column < count, grad, 0.0)
    tl.store(out + row * out_stride + column, grad.to(out.dtype.element_ty), mask=column < n)


@triton.jit
def _at(
    scores, query, column, values, pairs, n, row_stride, stride, SUBTRACT: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    pair = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pair < pairs
    at = tl.load(column + pair, mask=inside, other=-1)
    exists = inside & (at >= 0) & (at < n)
    place = scores + tl.load(query + pair, mask=inside, other=0) * row_stride + at * stride
    if SUBTRACT:
        less = tl.load(values + pair, mask=exists, other=0.0)
        # Padding may name a pair that another program changes; it has the value 0.
        exists = exists & (less != 0)
        old = tl.load(place, mask=exists, other=0.0).to(tl.float32)
        tl.store(place, (old - less).to(scores.dtype.element_ty), mask=exists)
    else:
        found = tl.load(place, mask=exists, other=0.0).to(tl.float32)
        tl.store(values + pair, found, mask=inside)


@triton.jit
def _count_ranks(
    scores, answer, tolerance, rows, out, n, stride,
    TOLERANT: tl.constexpr, ONE_PER_ROW: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    number = tl.program_id(0).to(tl.int64)
    row = number if ONE_PER_ROW else tl.load(rows + number)
    own = tl.load(answer + number)
    above = tl.zeros((BLOCK,), tl.int32)
    equal = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, n, BLOCK):
        column = first + tl.arange(0, BLOCK)
        values = tl.load(scores + row * stride + column, mask=column < n, other=float("-inf"))
        # An answer of -inf would equal the columns beyond the end.
        if TOLERANT:
            same = (tl.abs(values - own) <= tl.load(tolerance + number)) & (column < n)
            higher = (values > own) & (same == 0)
        else:
            same = (values == own) & (column < n)
            higher = values > own
        above += higher.to(tl.int32)
        equal += same.to(tl.int32)
    tl.store(out + 2 * number, tl.sum(above, 0).to(tl.int64))
    tl.store(out + 2 * number + 1, tl.sum(equal, 0).to(tl.int64))


@triton.jit
def _adagrad(
    table, grad, squares, rate, eps, bf16_copy, n, COPY: tl.constexpr, BLOCK: tl.constexpr
):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    g = tl.load(grad + index, mask=inside, other=0.0)
    s = tl.load(squares + index, mask=inside, other=0.0) + g * g
    tl.store(squares + index, s, mask=inside)
    step = tl.load(rate) * g / (tl.sqrt(s) + eps)
    new = tl.load(table + index, mask=inside) - step
    tl.store(table + index, new, mask=inside)
    if COPY:
        tl.store(bf16_copy + index, new.to(tl.bfloat16), mask=inside)
