"""Worker processes: the trials of a search, or the runs of `reproduce`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

import click

from allneg.cli.output import note
from allneg.errors import Interrupted, ResourceError

POLL_SECONDS = 0.1
TO_CONTINUE = "run the same command to continue"


@dataclass(frozen=True)
class Worker:
    """A process, and the file that receives its stderr."""

    process: subprocess.Popen[bytes]
    stderr: IO[bytes]

    @classmethod
    def start(cls, command: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """Start a command in its own session: a Ctrl-C must not reach it twice."""
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        return cls(process, stderr)

    @classmethod
    def start_allneg(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """Start `allneg` as a worker that stops when this process ends."""
        command = [sys.executable, "-m", "allneg", *arguments, "--worker-of", str(os.getpid())]
        return cls.start(command, environment)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[str]:
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace").splitlines()


def environments(count: int, share_gpus: bool) -> list[dict[str, str]]:
    """The environment of each of `count` workers: its share of the cores, and its GPU."""
    import torch

    threads = os.environ.get("OMP_NUM_THREADS") or max(1, torch.get_num_threads() // count)
    gpus = [str(i) for i in range(torch.cuda.device_count())] if share_gpus else []
    if gpus and (named := os.environ.get("CUDA_VISIBLE_DEVICES")):
        gpus = named.split(",")
    cores = {"OMP_NUM_THREADS": str(threads)}
    return [
        {**cores, "CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else cores
        for i in range(count)
    ]


def wait_for_trials(
    workers: list[Worker], stopped_by: Callable[[], int], n_left: Callable[[], int]
) -> None:
    """Wait for the workers; an error if they ended and trials are left.

    The other workers take over the trial of a worker that was killed.
    """
    number = 0
    while running := [worker for worker in workers if worker.is_running]:
        if not number and (number := stopped_by()):
            for worker in running:
                worker.process.send_signal(number)
        time.sleep(POLL_SECONDS)
    if number:
        raise Interrupted(f"stopped and saved; {TO_CONTINUE}", number)
    # Workers often fail for the same reason: print it once.
    for line in dict.fromkeys(line for worker in workers for line in worker.lines()):
        note(line)
    codes = [worker.process.returncode for worker in workers if worker.process.returncode]
    killed = sorted(signal.Signals(-code).name for code in codes if code < 0)
    if killed:
        note(f"{len(killed)} of {len(workers)} workers were killed ({', '.join(killed)})")
    if (left := n_left()) and killed:
        raise ResourceError(f"{left} trials are left and all workers have ended; {TO_CONTINUE}")
    if left:
        raise click.exceptions.Exit(max(codes, default=1))


def or_parent_ended(stopped_by: Callable[[], int], parent: int | None) -> Callable[[], int]:
    """As `stopped_by`, and SIGTERM once the process that started this worker has ended.

    A closed terminal ends only that process; its workers must not continue unnoticed.
    """
    if parent is None:
        return stopped_by
    return lambda: stopped_by() or (signal.SIGTERM if os.getppid() != parent else 0)
