"""softmax.c as a library, which is called with the addresses of tensors."""

import ctypes
import functools
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor

from allneg.errors import RecipeError
from allneg.kernels.compiler import CompileError, load

_Address, _Size = ctypes.c_void_p, ctypes.c_long
# Scores, row stride, columns, columns that count; target and two columns; first and last row.
_TYPES = (_Address, _Size, _Size, _Size, _Address, _Address, _Address, _Size, _Size)
# Scores, row stride, columns; rows, answers, tolerances and result; first and last answer.
_RANK_TYPES = (_Address, _Size, _Size, _Address, _Address, _Address, _Address, _Size, _Size)
_ENOUGH = 1 << 22  # comparisons that justify another thread


@functools.cache
def library() -> ctypes.CDLL | None:
    """The functions `log_sum_exp` and `softmax_gradient`; None if they cannot be compiled here."""
    try:
        found = load("softmax")
    except (CompileError, RecipeError):  # the latter: there is no cache folder
        return None
    for function in (found.log_sum_exp, found.softmax_gradient):
        function.argtypes, function.restype = _TYPES, None
    found.count_ranks.argtypes, found.count_ranks.restype = _RANK_TYPES, None
    return found


def count_ranks(
    scores: Tensor, answer: Tensor, tolerance: Tensor | None, row: Tensor | None
) -> Tensor | None:
    """As fused.count_ranks; None if it cannot be computed in C."""
    is_float = {scores.dtype, answer.dtype} == {torch.float32} and scores.stride(1) == 1
    c = library() if scores.device.type == "cpu" and is_float else None
    if c is None or (tolerance is not None and tolerance.dtype is not torch.float32):
        return None
    n, (_, width) = len(answer), scores.shape
    row = torch.arange(n) if row is None else row.contiguous()
    answer, tolerance = answer.contiguous(), None if tolerance is None else tolerance.contiguous()
    out = torch.empty(n, 2, dtype=torch.int64)
    given = (scores.data_ptr(), scores.stride(0), width, row.data_ptr(), answer.data_ptr())
    slack = None if tolerance is None else tolerance.data_ptr()
    work = functools.partial(c.count_ranks, *given, slack, out.data_ptr())
    threads = min(torch.get_num_threads(), 1 + n * width // _ENOUGH)
    first = range(0, max(1, n), max(1, -(-n // threads)))
    with ThreadPoolExecutor(len(first)) as pool:
        list(pool.map(work, first, [*first[1:], n]))
    return out
