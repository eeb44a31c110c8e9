"""How every benchmark measures: median time, peak extra memory, and on which machine."""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import gc
import json
import platform
import resource
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from allneg.graph import Graph, read_graph


@dataclass(frozen=True)
class Measured:
    """What one way of doing the work took."""

    milliseconds: float  # median over the repeats
    extra_mib: float  # peak memory beyond what was there before


def measure(work: Callable[[], object], device: torch.device, seconds: float) -> Measured:
    """The median of five samples that take about `seconds` together.

    A sample of quick work is many turns of it, one after the other as in training, so that
    the wait to start a GPU is not counted each time.
    """
    _timed(work, 1, device)  # compiles, warms caches
    extra = _extra_bytes(work, device)
    once = _timed(work, 1, device)
    samples = 1 if once > seconds else 5
    turns = max(1, int(seconds / samples / max(once, 1e-5)))
    times = [_timed(work, turns, device) / turns for _ in range(samples)]
    return Measured(round(statistics.median(times) * 1e3, 4), round(extra / 2**20, 1))


def machine(device: torch.device) -> dict[str, str]:
    """The names and versions a number depends on."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _cpu_name()
    return {
        "machine": name,
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
        "triton": _version("triton"),
        "python": platform.python_version(),
    }


def benchmark_parser(doc: str) -> argparse.ArgumentParser:
    """The options of most programs: the device, and the file of the result."""
    parser = argparse.ArgumentParser(description=doc.partition("\n\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--out", type=Path, help="where the JSON goes")
    return parser


def write_rows(
    about: Mapping[str, Any], rows: Iterable[Any], out: Path | None, done: Iterable[Any] = ()
) -> None:
    """Print each row as it comes, and write all so far to `out`, after those `done` before."""
    found = list(done)
    for row in rows:
        found.append(row)
        print(json.dumps(row), flush=True)
        if out is not None:
            write_whole(out, {**about, "rows": found})


def write_rows_of_graphs(
    doc: str, about: Mapping[str, Any], row: Callable[[Graph], Mapping[str, Any]]
) -> None:
    """A program that takes graphs and `--out`, and writes a row for each graph."""
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rows = ({"graph": Path(name).name, **row(read_graph(name))} for name in args.graphs)
    write_rows(about, rows, args.out)


def write_whole(out: Path, content: Mapping[str, Any]) -> None:
    """Write JSON such that a process that is killed leaves the earlier content or this one."""
    temporary = out.with_name(f".tmp-{out.name}")
    temporary.write_text(json.dumps(content, indent=1) + "\n")
    temporary.replace(out)


def _timed(work: Callable[[], object], turns: int, device: torch.device) -> float:
    if device.type == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(turns):
            work()
        end.record()
        torch.cuda.synchronize(device)
        return start.elapsed_time(end) / 1e3
    began = time.perf_counter()
    for _ in range(turns):
        work()
    return time.perf_counter() - began


def _extra_bytes(work: Callable[[], object], device: torch.device) -> int:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    return _extra_resident(work)


def _extra_resident(work: Callable[[], object]) -> int:
    """Peak resident memory during `work` less the level before it, sampled each millisecond."""
    _hand_back()
    before, peak, done = resident(), 0, threading.Event()

    def callbacks() -> None:
        nonlocal peak
        while not done.wait(0.001):
            peak = max(peak, resident())

    watcher = threading.Thread(target=callbacks)
    watcher.start()
    work()
    done.set()
    watcher.join()
    return max(0, max(peak, resident()) - before)


def _hand_back() -> None:
    """What was freed goes back to the system: taken again, it must count as extra."""
    with contextlib.suppress(OSError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)


def resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(package: str) -> str:
    try:
        return str(__import__(package).__version__)
    except ImportError:
        return "none"
