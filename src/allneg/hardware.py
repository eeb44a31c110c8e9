"""The device of a run: torch's settings, memory, and errors of the device."""

import contextlib
import ctypes
import functools
import os
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch

from allneg.errors import OutOfMemoryError, RecipeError, ResourceError
from allneg.recipe import Hardware

_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")  # the memory limit of a container
# Some allocators raise a plain RuntimeError with one of these texts.
_OUT_OF_MEMORY = (
    "DefaultCPUAllocator: can't allocate memory", "Storage size calculation overflowed"
)  # fmt: skip


class _State(NamedTuple):
    """The settings that `prepare` changes."""

    threads: int
    deterministic: bool
    tf32: bool
    dtype: torch.dtype
    keeps_memory: bool  # whether freed memory is kept
    products: str  # the precision that products on a CPU may have


_LOCK = threading.Lock()
_SAVED: list[_State] = []  # the first state, once per open `torch_settings`
_MMAP_MAX, _TRIM_THRESHOLD = -4, -1  # of glibc's mallopt
_keeps_memory = False


def prepare(settings: Hardware) -> torch.device:
    """Apply the settings to torch and return the device; a missing device is a `RecipeError`."""
    device = find_device(settings.device)
    if settings.deterministic:
        # cuBLAS reads this at its first call and is not deterministic without it.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads, dtype = settings.threads or torch.get_num_threads(), torch.get_default_dtype()
    tf32 = settings.precision != "float32"
    is_cpu = device.type == "cpu"
    products = "bf16" if is_cpu and onednn_is_faster() else _onednn().fp32_precision
    _apply(_State(threads, settings.deterministic, tf32, dtype, is_cpu, products))
    return device


@contextlib.contextmanager
def torch_settings(settings: Hardware) -> Iterator[torch.device]:
    """`prepare` inside a `with` block, which then restores the earlier settings.

    Threads that train at the same time share the settings: the last one restores what the first
    one found.
    """
    with _LOCK:
        _SAVED.append(_SAVED[0] if _SAVED else _current())
    try:
        torch.set_default_dtype(torch.float32)  # tables are float32, whatever the caller uses
        yield prepare(settings)
    finally:
        with _LOCK:
            saved = _SAVED.pop()
            if not _SAVED:
                _apply(saved)


def _current() -> _State:
    return _State(
        torch.get_num_threads(),
        torch.are_deterministic_algorithms_enabled(),
        torch.backends.cuda.matmul.allow_tf32,
        torch.get_default_dtype(),
        _keeps_memory,
        _onednn().fp32_precision,
    )


def _apply(state: _State) -> None:
    torch.set_default_dtype(state.dtype)
    _onednn().fp32_precision = state.products
    torch.backends.cuda.matmul.allow_tf32 = state.tf32
    if state.threads != torch.get_num_threads():
        torch.set_num_threads(state.threads)
    if state.deterministic != torch.are_deterministic_algorithms_enabled():
        # This call loads a compiler, which takes a second.
        torch.use_deterministic_algorithms(state.deterministic)
    if state.keeps_memory != _keeps_memory:
        _keep_memory(state.keeps_memory)


def _onednn() -> Any:
    return torch.backends.mkldnn.matmul  # type: ignore[attr-defined]


@functools.cache
def onednn_is_faster() -> bool:
    """Whether oneDNN has faster float32 products for this CPU than MKL, PyTorch's usual library.

    MKL uses few instructions of AMD's processors. PyTorch chooses oneDNN if products may round to
    bfloat16, but oneDNN does so only on processors with AMX.
    """
    found: Mapping[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    if not ("AMD" in str(found.get("cpu_name")) and found.get("avx512_bw")):
        return False
    earlier, one = _onednn().fp32_precision, torch.full((64, 64), 1 + 2.0**-12)
    try:
        _onednn().fp32_precision = "bf16"
        return bool((one @ one - 64 * (1 + 2.0**-12) ** 2).abs().max() < 1e-4)
    finally:
        _onednn().fp32_precision = earlier


def _keep_memory(keep: bool) -> None:
    """Whether the C library keeps large blocks that are freed, for the next ones.

    Otherwise, every training step gets new memory for its scores, and waits until the system has
    cleared it.
    """
    global _keeps_memory
    _keeps_memory = keep
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):  # another C library than glibc
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_MAX, 0 if keep else 1 << 16)
            library.mallopt(_TRIM_THRESHOLD, 1 << 30 if keep else 1 << 17)
            if not keep:
                library.malloc_trim(0)


def find_device(name: str) -> torch.device:
    """The device of a name; `auto` is a CUDA device, or the CPU if there is none.

    Without an index, a process of torchrun gets the CUDA device of its local rank.
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "cuda" and "LOCAL_RANK" in os.environ:
        name = f"cuda:{os.environ['LOCAL_RANK']}"
    n_cuda, has_mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    names = ["auto", "cpu", *(f"cuda:{i}" for i in range(n_cuda)), *["mps"] * has_mps]
    available = ", ".join(names)
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RecipeError(
            f"hardware.device: {name!r} is not a device; use one of: {available}"
        ) from None
    counts = {"cpu": 1, "cuda": n_cuda, "mps": int(has_mps)}
    if (device.index or 0) >= counts.get(device.type, 0):
        raise RecipeError(
            f"hardware.device: {name} is not available on this machine; use one of: {available}"
        )
    return device


def reset_peak(device: torch.device) -> None:
    """Start a new measurement of peak memory; only CUDA devices support this."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def peak_bytes(device: torch.device) -> int | None:
    """Peak memory: of the tensors on a GPU, or of the whole process on a CPU; None if unknown."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    if device.type != "cpu" or sys.platform == "win32":
        return None
    try:  # on Linux, getrusage starts at the peak of the parent process
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def memory(device: torch.device) -> int | None:
    """The bytes of a device that this process may use; None if unknown."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    if device.type != "cpu" or "SC_PHYS_PAGES" not in getattr(os, "sysconf_names", ()):  # Windows
        return None
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no such file, or `max`: no limit
        return min(total, int(_CGROUP_LIMIT.read_text()))
    return total


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error means that a device or this machine is out of memory."""
    is_known = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return is_known or any(text in str(error) for text in _OUT_OF_MEMORY)


@contextlib.contextmanager
def device_errors(
    device: torch.device,
    need_less: str = "Free some, or use --device cpu.",
    try_again: str = "Check that the device works, then try again.",
) -> Iterator[None]:
    """Turn errors of a full or failed device into an `AllnegError`.

    Its message ends with `need_less` (how to use less memory) or `try_again` (what to do once
    the device works).
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        reason = str(error).partition("\n")[0]
        if is_out_of_memory(error):
            raise OutOfMemoryError(f"{device}: out of memory ({reason}).\n{need_less}") from None
        if isinstance(error, torch.AcceleratorError) or reason.startswith("CUDA error"):
            text = f"{device}: the device stopped working ({reason}).\n{try_again}"
            raise ResourceError(text) from None
        raise
