"""What every engine of a distance kernel must keep, told once for `l1` and `modulus`."""

from __future__ import annotations

import importlib
import os
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from allneg.kernels.compiler import find_compiler

EPSILON = torch.finfo(torch.float32).eps
GPU = torch.cuda.is_available()


def _engines(kernel: str) -> dict[str, ModuleType]:
    """Without a GPU, Triton's programs run through its interpreter, slowly and on a CPU."""
    names = ("reference", "cpu", "compiled", "gpu")
    with pytest.MonkeyPatch.context() as patch:
        if not GPU:
            patch.setitem(os.environ, "TRITON_INTERPRET", "1")
        return {name: importlib.import_module(f"allneg.kernels.{kernel}.{name}") for name in names}


ENGINES = {kernel: _engines(kernel) for kernel in ("l1", "modulus")}


needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")


kernels = pytest.mark.parametrize("kernel, parts", [("l1", 1), ("modulus", 2)])


def every_engine(*names: str) -> pytest.MarkDecorator:
    """Run a test with each engine, or with those named; one that cannot run is skipped."""
    found = names or ("reference", "cpu", "compiled", "gpu")
    marks = {"compiled": needs_compiler}
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=marks.get(name, ())) for name in found]
    )


def engine_and_reference(kernel: str, name: str) -> tuple[ModuleType, ModuleType]:
    return ENGINES[kernel][name], ENGINES[kernel]["reference"]


def device_of(engine: ModuleType) -> str:
    on_gpu = engine.__name__.endswith("gpu") and GPU
    return "cuda" if on_gpu else "cpu"


def scores_are_as_exact_as_the_reference(
    engine: ModuleType, reference: ModuleType, query: Tensor, table: Tensor
) -> None:
    truth = reference.scores(query.double(), table.double())
    allowed = (reference.scores(query, table) - truth).abs() + _rounding(query) * truth.abs()
    device = device_of(engine)
    out = engine.scores(query.to(device), table.to(device)).cpu()
    assert out.dtype == torch.float32
    assert out.shape == truth.shape
    assert ((out - truth).abs() <= allowed + 1e-6).all()


def gradients_are_as_exact_as_the_reference(
    engine: ModuleType, reference: ModuleType, query: Tensor, table: Tensor
) -> None:
    grad = torch.randn(len(query), len(table))
    truth = reference.gradients(grad.double(), query.double(), table.double())
    plain = reference.gradients(grad, query, table)
    device = device_of(engine)
    out = engine.gradients(grad.to(device), query.to(device), table.to(device))
    # What is summed has the size of grad, so that is the scale rounding happens on.
    scales = grad.abs().sum(1, keepdim=True), grad.abs().sum(0).unsqueeze(1)
    for ours, theirs, right, scale in zip(out, plain, truth, scales, strict=True):
        assert ours.shape == right.shape
        allowed = (theirs - right).abs() + 8 * EPSILON * scale
        assert ((ours.cpu() - right).abs() <= allowed + 1e-6).all()


def _rounding(query: Tensor) -> float:
    """A sum of W numbers, one after the other: half a last place each time, random in sign."""
    return EPSILON * (2 + query.shape[1] ** 0.5)


class LargestTensor(TorchDispatchMode):
    """Watches the operations in a `with`, and keeps the size of the largest result."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for each in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(each, Tensor):
                self.numbers = max(self.numbers, each.untyped_storage().nbytes() // 4)
        return out
