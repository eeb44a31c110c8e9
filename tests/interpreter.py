"""Without a GPU, Triton's programs run in its interpreter, slowly and on a CPU."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from types import ModuleType
from typing import Any

import pytest
import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"  # where Triton's programs run

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton is not installed"
)


def interpreted(module: str) -> ModuleType | None:
    """A module of Triton programs, interpreted where there is no GPU; None without Triton.

    Triton decides when it is imported, so tests/shared_fixtures.py calls this before others do.
    """
    if importlib.util.find_spec("triton") is None:
        return None
    with pytest.MonkeyPatch.context() as patch:
        if not GPU:
            patch.setitem(os.environ, "TRITON_INTERPRET", "1")
            _patch_once()
        found = importlib.import_module(module)
    if not GPU and module == "allneg.kernels.attention.gpu":
        # There is a program for each query, padding included: as little of it as tiles allow.
        found._MOST_QUERIES = max(tile.queries for tile in found.GRADIENTS.values())
    return found


@functools.cache
def _patch_once() -> None:
    """Let Triton patch its language for a function once, not in every call of it.

    And let a product of two tiles give the same number wherever it is in its tile, as on a GPU.
    NumPy's products of float32 do not, on some CPUs.
    """
    import numpy as np
    from triton.runtime import interpreter

    patch = functools.cache(interpreter._patch_lang)

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        patch(self.fn)
        return self.rewrite()(*arguments, **named)

    def create_dot(self: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        product = np.matmul(a.data, b.data, dtype=np.float64).astype(d.data.dtype)
        return interpreter.TensorHandle(product + d.data, d.dtype.scalar)

    interpreter.InterpretedFunction.__call__ = call
    interpreter.InterpreterBuilder.create_dot = create_dot
