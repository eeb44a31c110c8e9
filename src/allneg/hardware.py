"""Where a run computes: device, threads, precision, determinism, and when that fails."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from allneg.errors import OutOfMemoryError, RecipeError, ResourceError
from allneg.recipe import Hardware

_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


def prepare(settings: Hardware) -> torch.device:
    """Set torch up as asked and return the device; a missing one is a `RecipeError`."""
    device = find_device(settings.device)
    if settings.threads is not None:
        torch.set_num_threads(settings.threads)
    torch.backends.cuda.matmul.allow_tf32 = settings.precision != "float32"
    if settings.deterministic:
        # cuBLAS asks for this before its first call, or refuses to be deterministic.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if settings.deterministic != torch.are_deterministic_algorithms_enabled():
        # Only where it changes something: the call loads a compiler, which takes a second.
        torch.use_deterministic_algorithms(settings.deterministic)
    return device


@contextlib.contextmanager
def prepared(settings: Hardware) -> Iterator[torch.device]:
    """`prepare` inside a `with`, and torch as it was before after it.

    Threads that train at the same time share one torch: the last to end leaves it as the first
    has found it.
    """
    with _LOCK:
        _BEFORE.append(_BEFORE[0] if _BEFORE else _Torch.now())
    try:
        torch.set_default_dtype(torch.float32)  # of tables, whatever others compute with
        yield prepare(settings)
    finally:
        with _LOCK:
            before = _BEFORE.pop()
            if not _BEFORE:
                before.restore()


@dataclass(frozen=True)
class _Torch:
    """What `prepared` changes for the whole process."""

    threads: int
    deterministic: bool
    narrow: bool
    dtype: torch.dtype

    @classmethod
    def now(cls) -> _Torch:
        return cls(
            torch.get_num_threads(),
            torch.are_deterministic_algorithms_enabled(),
            torch.backends.cuda.matmul.allow_tf32,
            torch.get_default_dtype(),
        )

    def restore(self) -> None:
        torch.set_default_dtype(self.dtype)
        torch.backends.cuda.matmul.allow_tf32 = self.narrow
        if self.threads != torch.get_num_threads():
            torch.set_num_threads(self.threads)
        if self.deterministic != torch.are_deterministic_algorithms_enabled():
            torch.use_deterministic_algorithms(self.deterministic)


_LOCK = threading.Lock()
_BEFORE: list[_Torch] = []  # torch as it was, once for each that is under way


def find_device(name: str) -> torch.device:
    """`auto` is a CUDA device, or the CPU.

    Of several CUDA devices it is the first, or that of this process among those that torchrun
    started on this machine.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RecipeError(f"hardware.device: {name!r} is no device; try {_available()}") from None
    here = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(_mps())}
    if (device.index or 0) >= here.get(device.type, 0):
        raise RecipeError(f"hardware.device: no {name} here; there is {_available()}")
    return device


def reset_peak(device: torch.device) -> None:
    """Begin to measure the peak of memory anew, where the device can."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """The most bytes held at once: on a GPU by tensors, on a CPU by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu" or sys.platform == "win32":
        return None
    try:  # what getrusage says on Linux begins at the peak of the process that started this one
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def memory(device: torch.device) -> int | None:
    """Bytes that a device has in all, or that this process may use of them; None: not known."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type != "cpu" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or the word max: no limit
        return min(whole, int(_LIMIT.read_text()))
    return whole


def is_out_of_memory(error: BaseException) -> bool:
    """Did memory run out, on a device or on this machine?"""
    # A CPU's allocator has no error of its own, nor has a size beyond what 64 bits count.
    said = ("DefaultCPUAllocator: can't allocate memory", "Storage size calculation overflowed")
    known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return known or any(each in str(error) for each in said)


@contextlib.contextmanager
def trouble_named(
    device: torch.device,
    less: str = "Free some, or use --device cpu.",
    again: str = "See that the device works, then try again.",
) -> Iterator[None]:
    """Turn a device that is full or gone into a `AllnegError`.

    `less` says how to need less memory, `again` what to do once the device is back.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        what = str(error).partition("\n")[0]
        if is_out_of_memory(error):
            raise OutOfMemoryError(f"{device}: out of memory ({what}).\n{less}") from None
        if isinstance(error, torch.AcceleratorError) or what.startswith("CUDA error"):
            raise ResourceError(f"{device}: does not answer any more ({what}).\n{again}") from None
        raise


def _available() -> str:
    names = ["auto", "cpu", *(f"cuda:{i}" for i in range(torch.cuda.device_count()))]
    return ", ".join(names + ["mps"] * _mps())


def _mps() -> bool:
    return torch.backends.mps.is_available()
