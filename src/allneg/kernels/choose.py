"""Which engine runs a kernel, and how autograd meets it."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from allneg.errors import RecipeError, close_names, printable
from allneg.kernels.compiler import find_compiler, no_compiler

_NO_CPU_ENGINE = ("adagrad", "answers", "looked", "powers", "rows", "times")
_COMPILED = ("l1", "modulus")
ENGINES = ("auto", "reference", "cpu", "compiled", "gpu")
_asked = "auto"  # for the whole process: a server's threads must not differ


def engine(kernel: str, device: torch.device) -> ModuleType:
    """The module that runs `kernel` on `device`, such as `allneg.kernels.l1.gpu`.

    A kernel that gains nothing from an engine for a CPU runs its reference there.
    """
    name, _ = _choice(device)
    if name == "compiled" and kernel not in _COMPILED:
        name = "cpu"
    if name == "cpu" and kernel in _NO_CPU_ENGINE:
        name = "reference"
    return importlib.import_module(f"allneg.kernels.{kernel}.{name}")


def why(kernel: str, device: torch.device) -> str:
    """One line for the run's print: which engine runs `kernel` on `device`, and why."""
    name, reason = _choice(device)
    if name == "cpu" and _asked == "auto" and kernel in _COMPILED and find_compiler():
        reason += "; hardware.engine = 'compiled' is faster: a C compiler is here"
    return f"{kernel} on {device}: engine {name} ({reason})"


def use(name: str) -> None:
    """From here on, take the engine `name`; 'auto' chooses by the device again."""
    global _asked
    _asked = _known(name)


@contextmanager
def using(name: str) -> Iterator[None]:
    """Take the engine `name` inside a `with`, and what was asked before after it."""
    before = _asked
    use(name)
    try:
        yield
    finally:
        use(before)


def compare(engine: ModuleType, query: Tensor, table: Tensor) -> Tensor:
    """Scores of every query with every row by `engine`, differentiable once."""
    out: Tensor = _Compare.apply(engine, query, table)  # type: ignore[no-untyped-call]
    return out


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, engine: ModuleType, query: Tensor, table: Tensor) -> Tensor:
        ctx.engine = engine
        ctx.save_for_backward(query, table)
        out: Tensor = engine.scores(query, table)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor]:
        query, table = ctx.saved_tensors
        to_query, to_table = ctx.engine.gradients(grad, query, table)
        return None, to_query.to(query.dtype), to_table.to(table.dtype)


def _choice(device: torch.device) -> tuple[str, str]:
    asked = _asked
    if asked == "gpu" and not _has_triton():
        raise RecipeError(
            "hardware.engine is 'gpu', but Triton is not installed\n"
            "install it with: pip install 'allneg[gpu]'; or set hardware.engine to 'auto'"
        )
    if asked == "gpu" and device.type != "cuda" and not _interpreted():
        raise RecipeError(
            f"hardware.engine is 'gpu', but the rows are on {device}\n"
            "set hardware.device to 'cuda', or hardware.engine to 'auto'"
        )
    if asked in ("cpu", "compiled") and device.type != "cpu":
        raise RecipeError(
            f"hardware.engine is '{asked}', but the rows are on {device}\n"
            "set hardware.device to 'cpu', or hardware.engine to 'auto'"
        )
    if asked == "compiled" and not find_compiler():
        raise no_compiler()
    if asked != "auto":
        return asked, "asked for"
    if device.type == "cpu":
        return "cpu", "the rows are on a CPU"
    if device.type != "cuda":
        return "reference", f"there is no faster one for {device.type}"
    if not _has_triton():
        return "reference", "Triton is not installed: pip install 'allneg[gpu]' makes it faster"
    if torch.are_deterministic_algorithms_enabled():
        return "gpu", "Triton, without atomic adds: PyTorch is told to be deterministic"
    return "gpu", "Triton"


def _known(name: str) -> str:
    if name not in ENGINES:
        raise RecipeError(
            f"hardware.engine: there is no engine {printable(name)}{close_names(name, ENGINES)}\n"
            f"choose one of: {', '.join(ENGINES)}"
        )
    return name


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None


def _interpreted() -> bool:
    return os.environ.get("TRITON_INTERPRET") == "1"
