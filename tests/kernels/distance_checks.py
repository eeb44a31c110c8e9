"""Checks that every engine of the distances must pass, and which engines can run here."""

from __future__ import annotations

import importlib
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from allneg.kernels.compiler import find_compiler
from allneg.kernels.distances import Distance
from interpreter import DEVICE, interpreted, needs_triton

EPSILON = torch.finfo(torch.float32).eps

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
kernels = pytest.mark.parametrize("parts", [1, 2], ids=["l1", "modulus"])


def every_engine(*names: str) -> pytest.MarkDecorator:
    """Run a test with each engine, or with those named; one that cannot run is skipped."""
    marks = {"compiled": needs_compiler, "gpu": needs_triton}
    names = names or ("reference", "cpu", "compiled", "gpu")
    return pytest.mark.parametrize(
        "name", [pytest.param(name, marks=marks.get(name, ())) for name in names]
    )


def engine(name: str) -> ModuleType:
    return importlib.import_module(f"allneg.kernels.distances.{name}")


interpreted("allneg.kernels.distances.gpu")


def kernel(name: str, parts: int) -> Distance:
    return Distance("l1" if parts == 1 else "modulus", parts, engine(name))


def device_of(name: str) -> str:
    return DEVICE if name == "gpu" else "cpu"


def check_scores(name: str, parts: int, query: Tensor, table: Tensor) -> None:
    """The scores are at least as exact as those of the reference."""
    plain = kernel("reference", parts)
    truth = plain.scores(query.double(), table.double())
    # A sum of W numbers rounds W times, at random up or down.
    rounding = EPSILON * (2 + query.shape[1] ** 0.5)
    allowed = (plain.scores(query, table) - truth).abs() + rounding * truth.abs()
    device = device_of(name)
    out = kernel(name, parts).scores(query.to(device), table.to(device)).cpu()
    assert out.dtype == torch.float32
    assert out.shape == truth.shape
    assert ((out - truth).abs() <= allowed + 1e-6).all()


def check_gradients(name: str, parts: int, query: Tensor, table: Tensor) -> None:
    """The gradients are at least as exact as those of the reference."""
    plain = kernel("reference", parts)
    grad = torch.randn(len(query), len(table))
    truth = plain.gradients(grad.double(), query.double(), table.double())
    reference = plain.gradients(grad, query, table)
    device = device_of(name)
    found = kernel(name, parts).gradients(grad.to(device), query.to(device), table.to(device))
    # The numbers that are summed have the size of grad, so rounding happens on that scale.
    scales = grad.abs().sum(1, keepdim=True), grad.abs().sum(0).unsqueeze(1)
    for ours, theirs, right, scale in zip(found, reference, truth, scales, strict=True):
        assert ours.shape == right.shape
        allowed = (theirs - right).abs() + 8 * EPSILON * scale
        assert ((ours.cpu() - right).abs() <= allowed + 1e-6).all()


class LargestTensor(TorchDispatchMode):
    """Keeps the size of the largest result of the operations in a `with`."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        for result in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(result, Tensor):
                self.numbers = max(self.numbers, result.untyped_storage().nbytes() // 4)
        return out
