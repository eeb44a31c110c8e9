"""softmax.c as a library, which is called with the addresses of tensors."""

import ctypes
import functools

from allneg.errors import RecipeError
from allneg.kernels.compiler import CompileError, load

_Address, _Size = ctypes.c_void_p, ctypes.c_long
# Scores, row stride, columns, columns that count; target and two columns; first and last row.
_TYPES = (_Address, _Size, _Size, _Size, _Address, _Address, _Address, _Size, _Size)
# Scores, row stride, columns; rows, answers, tolerances and result; first and last answer.
_RANK_TYPES = (_Address, _Size, _Size, _Address, _Address, _Address, _Address, _Size, _Size)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The functions of softmax.c; None if they cannot be compiled here."""
    try:
        found = load("softmax")
    except (CompileError, RecipeError):  # the latter: there is no cache folder
        return None
    for function in (found.log_sum_exp, found.softmax_gradient):
        function.argtypes, function.restype = _TYPES, None
    found.count_ranks.argtypes, found.count_ranks.restype = _RANK_TYPES, None
    return found
