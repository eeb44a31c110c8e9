"""Processes for tests, forked from one that has imported torch: they start in milliseconds."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import Any


def forks() -> ForkServerContext:
    """A context whose processes find torch, PyTorch's optimizers and the commands imported."""
    context = multiprocessing.get_context("forkserver")
    # Names that need no path of the tests: the server does not get any.
    context.set_forkserver_preload(
        ["pytest", "torch._dynamo", "allneg.cli.train", "allneg.cli.reports", "allneg.training"]
    )
    return context


def start(
    function: Callable[..., object], *arguments: Any, output: Path | None = None, **variables: str
) -> ForkServerProcess:
    """Call a function in a process; all that it prints goes to the file `output`."""
    environment = {**os.environ, **variables}
    process = forks().Process(target=_run, args=(function, arguments, environment, output))
    process.start()
    return process


def start_command(
    *arguments: object, output: Path | None = None, **variables: str
) -> ForkServerProcess:
    """Run `allneg` in a process, with variables of the environment."""
    return start(_command, [str(word) for word in arguments], output=output, **variables)


def _run(
    function: Callable[..., object],
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    output: Path | None,
) -> None:
    import torch

    os.environ.clear()
    os.environ.update(environment)
    torch.set_num_threads(1)
    if output is not None:
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(file, 1)
        os.dup2(file, 2)
    function(*arguments)


def _command(arguments: list[str]) -> None:
    from allneg.cli import main

    sys.argv = ["allneg", *arguments]
    main()
