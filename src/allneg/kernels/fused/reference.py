"""The definition of the fused operations in plain PyTorch.

Passes over scores take a few rows at a time, which stay in the cache of a CPU. On a CPU with a C
compiler, softmax.c computes the softmax and counts ranks in less time.
"""

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor
from torch.optim.adagrad import adagrad as pytorch_adagrad

from allneg.kernels.fused import softmax

_SCORES = 1 << 17  # scores per block of rows
# What justifies another thread: exponentials, and comparisons.
_EXPONENTIALS, _COMPARISONS = 1 << 20, 1 << 22
_one_pass = functools.partial(
    pytorch_adagrad, fused=True, weight_decay=0, lr_decay=0, maximize=False
)


def complex_mul(a: Tensor, b: Tensor, conjugate: bool) -> Tensor:
    (a_re, a_im), (b_re, b_im) = a.chunk(2, dim=-1), b.chunk(2, dim=-1)
    if conjugate:
        return torch.cat([a_re * b_re + a_im * b_im, a_im * b_re - a_re * b_im], dim=-1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], dim=-1)


def power_gradients(
    factor: Tensor, grad: Tensor, power: int, weight: float | Tensor, out: Tensor, add: bool
) -> None:
    squares = factor.square().sum(1)
    # The root of a cube by itself: a general power is several times slower.
    slope = squares.sqrt() if power == 3 else squares.pow(power / 2 - 1)
    slope *= weight.unsqueeze(1) if isinstance(weight, Tensor) else weight
    if not add:
        grad.zero_()
    grad.addcmul_(slope.unsqueeze(1), factor, value=power)
    out.add_((squares * slope).sum(1))


def transposed(x: Tensor) -> Tensor:
    return x.T.contiguous()


def scatter_add(table: Tensor, ids: Tensor, rows: Tensor) -> None:
    table.index_add_(0, ids, rows)


def mask_out(scores: Tensor, target: Tensor, count: int) -> Tensor:
    """Each row's score at its target, which becomes -inf, as do all columns from `count` on.

    (B, N), (B,) -> (B,). A target outside the columns has the score -inf.
    """
    if count < scores.shape[1]:
        scores[:, max(count, 0) :] = -torch.inf
    inside = (target >= 0) & (target < scores.shape[1])
    column = target.clamp(0, scores.shape[1] - 1).unsqueeze(1)
    old = scores.gather(1, column).squeeze(1)
    scores.scatter_(1, column, torch.where(inside, -torch.inf, old).unsqueeze(1))
    return torch.where(inside, old, -torch.inf)


def put(grad: Tensor, target: Tensor, values: Tensor) -> None:
    """Write each row's value at its target, where that is a column: (B, N), (B,), (B,)."""
    inside = (target >= 0) & (target < grad.shape[1])
    column = target.clamp(0, grad.shape[1] - 1).unsqueeze(1)
    new = torch.where(inside, values.to(grad.dtype), grad.gather(1, column).squeeze(1))
    grad.scatter_(1, column, new.unsqueeze(1))


def values_at(scores: Tensor, query: Tensor, column: Tensor) -> Tensor:
    inside = (column >= 0) & (column < scores.shape[1])
    found = torch.where(inside, scores[query, torch.where(inside, column, 0)], 0.0)
    return found.float() if found.dtype is torch.bfloat16 else found


def subtract_at(scores: Tensor, query: Tensor, column: Tensor, values: Tensor) -> None:
    inside = (column >= 0) & (column < scores.shape[1])
    values = torch.where(inside, -values, 0.0).to(scores.dtype)
    scores.index_put_((query, torch.where(inside, column, 0)), values, accumulate=True)


def log_sum_exp(scores: Tensor, target: Tensor, count: int) -> Tensor:
    out = scores.new_empty(2, len(scores))
    if not _in_c("log_sum_exp", scores, count, target, out[0], out[1]):
        out[0] = mask_out(scores, target, count)
        size = max(1, _SCORES // max(1, scores.shape[1]))
        for start in range(0, len(scores), size):
            out[1, start : start + size] = scores[start : start + size].logsumexp(1)
    return out


def softmax_gradient(
    scores: Tensor, target: Tensor, count: int, state: Tensor, weight: Tensor, bf16: bool
) -> Tensor:
    shift = torch.logaddexp(state[1], state[0]) - weight.log()
    value = -weight * torch.sigmoid(state[1] - state[0])
    if not _in_c("softmax_gradient", scores, count, target, shift, value):
        size = max(1, _SCORES // max(1, scores.shape[1]))
        for start in range(0, len(scores), size):
            rows = slice(start, start + size)
            scores[rows].sub_(shift[rows].unsqueeze(1)).exp_()
        scores[:, max(count, 0) :] = 0.0
        put(scores, target, value)
    return scores.bfloat16() if bf16 else scores


def _in_c(name: str, scores: Tensor, count: int, *columns: Tensor) -> bool:
    """Call a function of softmax.c on spans of rows at the same time, if it can be used."""
    is_float = scores.dtype is columns[1].dtype is columns[2].dtype is torch.float32
    is_plain = scores.stride(1) == 1 and all(map(Tensor.is_contiguous, columns))
    library = softmax.library() if scores.device.type == "cpu" and is_float and is_plain else None
    if library is None:
        return False
    n, width = scores.shape
    given = scores.stride(0), width, min(max(count, 0), width), *map(Tensor.data_ptr, columns)
    work = functools.partial(getattr(library, name), scores.data_ptr(), *given)
    _in_threads(work, n, 1 + n * width // _EXPONENTIALS)
    return True


def _in_threads(work: Callable[[int, int], None], n: int, most: int) -> None:
    """Call C code on spans of `n` rows at once, without the interpreter lock."""
    threads = min(torch.get_num_threads(), most)
    first = range(0, max(1, n), max(1, -(-n // threads)))
    if len(first) == 1:
        work(0, n)
    else:
        with ThreadPoolExecutor(len(first)) as pool:
            list(pool.map(work, first, [*first[1:], n]))


def count_ranks(
    scores: Tensor, answer: Tensor, tolerance: Tensor | None, row: Tensor | None
) -> Tensor:
    if (found := ranks_in_c(scores, answer, tolerance, row)) is not None:
        return found
    n = scores.shape[1]
    answer, size = answer.unsqueeze(1), max(1, _SCORES // max(1, n))
    # A sum of floats takes a fraction of the time of a sum of bools, and is exact up to 2 ** 24.
    dtype = torch.float32 if n <= 1 << 24 else torch.float64
    out = torch.zeros(len(answer), 2, dtype=dtype, device=scores.device)
    above, equal = scores.new_empty(2, min(size, len(answer)), n, dtype=dtype)
    for start in range(0, len(answer), size):
        part = slice(start, min(start + size, len(answer)))
        above, equal = above[: part.stop - start], equal[: part.stop - start]
        values = scores[part] if row is None else scores[row[part]]
        torch.gt(values, answer[part], out=above)
        if tolerance is None:
            torch.eq(values, answer[part], out=equal)
        else:
            near = (values - answer[part]).abs_()
            torch.le(near, tolerance[part].unsqueeze(1), out=equal)
            above *= 1 - equal
        torch.sum(above, 1, out=out[part, 0])
        torch.sum(equal, 1, out=out[part, 1])
    return out.long()


def ranks_in_c(
    scores: Tensor, answer: Tensor, tolerance: Tensor | None, row: Tensor | None
) -> Tensor | None:
    """As `count_ranks`; None if it cannot be computed in C."""
    is_float = {scores.dtype, answer.dtype} == {torch.float32} and scores.stride(1) == 1
    library = softmax.library() if scores.device.type == "cpu" and is_float else None
    if library is None or (tolerance is not None and tolerance.dtype is not torch.float32):
        return None
    n, (_, width) = len(answer), scores.shape
    row = torch.arange(n) if row is None else row.contiguous()
    answer, tolerance = answer.contiguous(), None if tolerance is None else tolerance.contiguous()
    out = torch.empty(n, 2, dtype=torch.int64)
    given = (scores.data_ptr(), scores.stride(0), width, row.data_ptr(), answer.data_ptr())
    slack = None if tolerance is None else tolerance.data_ptr()
    work = functools.partial(library.count_ranks, *given, slack, out.data_ptr())
    _in_threads(work, n, 1 + n * width // _COMPARISONS)
    return out


def adagrad(
    table: Tensor, grad: Tensor, squares: Tensor, rate: Tensor, eps: float, bf16_copy: Tensor | None
) -> None:
    if table.device.type == "cpu":
        _one_pass([table], [grad], [squares], [torch.tensor(0.0)], lr=float(rate), eps=eps)
    else:
        squares.addcmul_(grad, grad)
        table.sub_(rate * grad / (squares.sqrt() + eps))
    if bf16_copy is not None:
        bf16_copy.copy_(table)
