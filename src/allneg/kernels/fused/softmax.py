"""softmax.c as a library, which reference.py calls with the addresses of tensors."""

import ctypes
import functools

from allneg.errors import RecipeError
from allneg.kernels.compiler import CompileError, load

_Address, _Size = ctypes.c_void_p, ctypes.c_long
# Scores, row stride, columns, columns that count; target and two columns; first and last row.
_TYPES = (_Address, _Size, _Size, _Size, _Address, _Address, _Address, _Size, _Size)


@functools.cache
def library() -> ctypes.CDLL | None:
    """The functions `log_sum_exp` and `softmax_gradient`; None if they cannot be compiled here."""
    try:
        found = load("softmax")
    except (CompileError, RecipeError):  # the latter: there is no cache folder
        return None
    for function in (found.log_sum_exp, found.softmax_gradient):
        function.argtypes, function.restype = _TYPES, None
    return found
