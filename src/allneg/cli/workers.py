"""The processes that share the trials of a search, or the numbers of a table."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import IO

import click

from allneg.cli.say import note
from allneg.errors import Interrupted, ResourceError

_SECONDS_A_LOOK = 0.1


@dataclass(frozen=True)
class Worker:
    """A process, and the file that takes what it says on stderr."""

    process: subprocess.Popen[bytes]
    said: IO[bytes]

    @classmethod
    def start(cls, command: list[str], environment: Mapping[str, str]) -> Worker:
        # In a session of its own: a Ctrl-C comes to us alone, and we pass it on once.
        said = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        process = subprocess.Popen(
            command,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=said,
            start_new_session=True,
        )
        return cls(process, said)

    @property
    def is_at_work(self) -> bool:
        return self.process.poll() is None

    def lines(self) -> list[str]:
        self.said.seek(0)
        return self.said.read().decode(errors="replace").splitlines()


def start(count: int, arguments: list[str], share_gpus: bool) -> list[Worker]:
    """`allneg` with these arguments, so many times; they share cores and, if told to, GPUs."""
    places = shares(count, share_gpus)
    command = [sys.executable, "-m", "allneg", *arguments]
    return [Worker.start(command, environment) for environment in places]


def shares(count: int, share_gpus: bool) -> list[dict[str, str]]:
    """The environment of each of so many processes: its share of the cores, and its GPU."""
    import torch

    threads = os.environ.get("OMP_NUM_THREADS") or max(1, torch.get_num_threads() // count)
    gpus = _gpus(torch.cuda.device_count()) if share_gpus else []
    cores = {"OMP_NUM_THREADS": str(threads)}
    return [
        {**cores, "CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else cores
        for i in range(count)
    ]


def oversee(
    workers: list[Worker], stopped_by: Callable[[], int], n_left: Callable[[], int]
) -> None:
    """Wait for the workers, and complain if trials are left when they have ended.

    A worker that is killed is no trouble while there are others: they take up its trial.
    """
    told = 0
    while any(each.is_at_work for each in workers):
        if not told and (told := stopped_by()):
            for each in workers:
                if each.is_at_work:
                    each.process.send_signal(told)
        time.sleep(_SECONDS_A_LOOK)
    if told:
        raise Interrupted("stopped and saved; the same command goes on", told)
    # They may all have met the same trouble: it is said once.
    for line in dict.fromkeys(line for each in workers for line in each.lines()):
        note(line)
    codes = [each.process.returncode for each in workers if each.process.returncode]
    killed = sorted(signal.Signals(-code).name for code in codes if code < 0)
    if killed:
        note(f"{len(killed)} of {len(workers)} workers were killed ({', '.join(killed)})")
    if (left := n_left()) and killed:
        raise ResourceError(f"{left} trials are left and no worker; the same command goes on")
    if left:
        raise click.exceptions.Exit(max(codes, default=1))


def with_parent(stopped_by: Callable[[], int], parent: int | None) -> Callable[[], int]:
    """As `stopped_by`, and SIGTERM once the process that started this one has gone.

    A closed terminal ends that process alone; its workers must not go on unseen.
    """
    if parent is None:
        return stopped_by
    return lambda: stopped_by() or (signal.SIGTERM if os.getppid() != parent else 0)


def _gpus(count: int) -> list[str]:
    """The names of the GPUs that this process sees."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(i) for i in range(count)]
