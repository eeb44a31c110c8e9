"""Which engine runs a kernel on a device: `reference`, `cpu`, `compiled` or `gpu`."""

import importlib
import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import torch

from allneg.errors import RecipeError, close_names, printable
from allneg.kernels import compiler

ENGINES = ("auto", "reference", "cpu", "compiled", "gpu")
# Active requests of `using`; the last one counts. They apply to the whole process, because all
# threads of a server must use the same engine, and they may end in any order.
_requests: dict[object, str] = {}


def distance_engine(device: torch.device) -> ModuleType:
    """The module that computes distances on `device`, such as `allneg.kernels.distances.gpu`."""
    return importlib.import_module(f"allneg.kernels.distances.{_choice(device)[0]}")


def triton_engine(package: str, device: torch.device) -> ModuleType:
    """The module of `fused` or `attention`: in Triton, or the definition in PyTorch."""
    name = "gpu" if uses_triton(device) else "reference"
    return importlib.import_module(f"allneg.kernels.{package}.{name}")


def uses_triton(device: torch.device) -> bool:
    return _choice(device)[0] == "gpu"


def describe_engine(device: torch.device) -> str:
    """The engine that computes distances on `device`, and why: 'engine gpu (Triton)'."""
    name, reason = _choice(device)
    return f"engine {name} ({reason})"


@contextmanager
def using(name: str) -> Iterator[None]:
    """Use the engine `name` inside a `with`; `auto` chooses by the device."""
    if name not in ENGINES:
        raise RecipeError(
            f"hardware.engine: there is no engine {printable(name)}{close_names(name, ENGINES)}\n"
            f"choose one of: {', '.join(ENGINES)}"
        )
    key = object()
    _requests[key] = name
    try:
        yield
    finally:
        del _requests[key]


def _choice(device: torch.device) -> tuple[str, str]:
    """The engine's name, and the reason for the choice."""
    request = next(reversed(_requests.values()), "auto")
    if request != "auto":
        check_engine(request, device)
        return request, "as requested"
    if device.type == "cpu":
        problem = compiler.problem()
        if problem is None:
            return "compiled", "with the C compiler of this machine"
        return "cpu", f"{problem}; with a C compiler, distances are 3 to 5 times faster"
    if device.type != "cuda":
        return "reference", f"there is no faster one for {device.type}"
    if not _has_triton():
        return "reference", "Triton is not installed; for more speed: pip install 'allneg[gpu]'"
    if torch.are_deterministic_algorithms_enabled():
        return "gpu", "Triton, without atomic adds: PyTorch is set to be deterministic"
    return "gpu", "Triton"


def check_engine(name: str, device: torch.device) -> None:
    """Raise a `RecipeError` if an engine cannot run on `device`; `auto` always can."""
    problem, remedy = None, "set hardware.engine to 'auto'"
    if name == "gpu" and not _has_triton():
        problem = "Triton is not installed"
        remedy = f"install it with: pip install 'allneg[gpu]'; or {remedy}"
    elif name == "gpu" and device.type != "cuda" and os.environ.get("TRITON_INTERPRET") != "1":
        problem, remedy = f"the rows are on {device}", f"set hardware.device to 'cuda', or {remedy}"
    elif name in ("cpu", "compiled") and device.type != "cpu":
        problem, remedy = f"the rows are on {device}", f"set hardware.device to 'cpu', or {remedy}"
    elif name == "compiled" and (problem := compiler.problem()):
        remedy = f"install or repair a C compiler such as gcc or clang; or {remedy}"
    if problem:
        raise RecipeError(f"hardware.engine is '{name}', but {problem}\n{remedy}")


def _has_triton() -> bool:
    return importlib.util.find_spec("triton") is not None
