"""Processes for tests, forked from one that has imported torch: they start in milliseconds."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import IO, Any

# Imported once for all processes. The server does not get the paths of the tests.
PRELOADED = [
    "pytest", "torch.fx.experimental.symbolic_shapes", "allneg.training", "allneg.cli.reports",
    "allneg.serve.app", "allneg.tuning",
]  # fmt: skip


def forks(*more: str) -> ForkServerContext:
    """A context whose processes have torch and the library imported; the first call may add more.

    PyTorch's Adam and SGD need torch._dynamo, which takes as long as torch.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOADED, *more])
    forkserver.ensure_running()  # with these, not with what a benchmark asks for
    return context


def start(
    function: Callable[..., object],
    *arguments: Any,
    out: Path | None = None,
    err: Path | None = None,
    **variables: str,
) -> ForkServerProcess:
    """Call a function in a process, such as `exec` with code; stdout and stderr go to files."""
    environment = {**os.environ, **variables}
    process = forks().Process(target=_call, args=(function, arguments, environment, out, err))
    process.start()
    return process


def start_command(*arguments: object, **options: Any) -> ForkServerProcess:
    """Run `allneg` in a process."""
    return start(run_command, list(map(str, arguments)), **options)


class ForkedPopen:
    """The `subprocess.Popen` of a worker of `allneg`, whose parent is the one that forks."""

    def __init__(
        self, command: list[str], *, env: dict[str, str], stderr: IO[bytes], **_: object
    ) -> None:
        arguments = command[command.index("allneg") + 1 :]
        err = Path(f"/proc/{os.getpid()}/fd/{stderr.fileno()}")
        self._process = start(_worker, arguments, out=Path(os.devnull), err=err, **env)

    def poll(self) -> int | None:
        return self._process.exitcode

    returncode = property(poll)

    def send_signal(self, number: int) -> None:
        os.kill(self._process.pid, number)


def wait_until(condition: Callable[[], object], process: ForkServerProcess) -> None:
    """Wait for a condition; an error if the process ends before."""
    end = time.monotonic() + 60
    while not condition():
        assert process.is_alive(), f"ended with {process.exitcode}"
        assert time.monotonic() < end, "not within a minute"
        time.sleep(0.01)


def _call(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    *files: Path | None,
) -> None:
    import torch

    gc.freeze()  # else garbage is looked for in all of torch again and again
    torch.set_num_threads(1)
    os.environ.clear()
    os.environ.update(environment)
    for descriptor, path in enumerate(files, start=1):
        if path is not None:
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), descriptor)
    function(*arguments)


def run_command(arguments: list[str]) -> None:
    """Run `allneg` in this process."""
    from allneg.cli import main

    sys.argv = ["allneg", *arguments]
    main()


def run_under_torchrun(arguments: list[str]) -> None:
    """What `torchrun --standalone --nproc-per-node 2 --max-restarts 1` does with `allneg`."""
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        1, 1, 2, max_restarts=1, rdzv_backend="c10d", rdzv_endpoint="localhost:0",
        start_method="fork",
    )  # fmt: skip
    elastic_launch(config, run_command)(arguments)


def _worker(arguments: list[str]) -> None:
    os.setsid()
    run_command([*arguments[:-1], str(os.getppid())])  # after --worker-of


def stop_after(steps: int) -> Callable[[], int]:
    """A `stopped_by` that receives SIGTERM after so many steps."""
    left = steps

    def stopped_by() -> int:
        nonlocal left
        left -= 1
        return signal.SIGTERM if left <= 0 else 0

    return stopped_by
