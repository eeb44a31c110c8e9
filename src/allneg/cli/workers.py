"""Child processes of `allneg`: the workers of a search, and the trainings of `reproduce`."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO, TYPE_CHECKING

import click

from allneg.errors import AllnegError, Diverged, Interrupted, ResourceError, error_for_exit_code
from allneg.terminal import note

if TYPE_CHECKING:
    from allneg.reproduce import Task

TRIAL_POLL_SECONDS = 1.0  # each poll reads the results of all trials
_POLL_SECONDS = 0.1
TO_CONTINUE = "run the same command to continue"
# The exit codes after a signal: 128 + its number, or minus its number before the handler was set.
_INTERRUPTED = (130, 143, -signal.SIGINT, -signal.SIGTERM)


@dataclass(frozen=True)
class Worker:
    """A process, and the file that receives its stderr."""

    process: subprocess.Popen[bytes]
    stderr: IO[bytes]

    @classmethod
    def start(cls, arguments: Sequence[str], environment: Mapping[str, str]) -> Worker:
        """Start `allneg` as a worker that stops when this process ends.

        It has its own session: a Ctrl-C must not reach it twice.
        """
        stderr = tempfile.TemporaryFile()  # noqa: SIM115 (it lives as long as the worker)
        process = subprocess.Popen(
            [sys.executable, "-m", "allneg", *arguments, "--worker-of", str(os.getpid())],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        return cls(process, stderr)

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def stop(self, number: int) -> None:
        """Pass a signal on. On Windows, the console sends Ctrl-C to all processes itself."""
        if os.name != "nt" or number != signal.SIGINT:
            self.process.send_signal(number)

    def lines(self) -> list[str]:
        self.stderr.seek(0)
        return self.stderr.read().decode(errors="replace").splitlines()


def environments(count: int, devices: set[str]) -> list[dict[str, str]]:
    """The environment of each of `count` workers: its share of the cores, and its GPU.

    Workers share the GPUs unless `devices`, which the recipes name, has a particular one.
    """
    import torch

    threads = os.environ.get("OMP_NUM_THREADS") or max(1, torch.get_num_threads() // count)
    gpus = [str(i) for i in range(torch.cuda.device_count())] if devices <= {"auto", "cuda"} else []
    if gpus and (named := os.environ.get("CUDA_VISIBLE_DEVICES")):
        gpus = named.split(",")
    cores = {"OMP_NUM_THREADS": str(threads)}
    return [
        {**cores, "CUDA_VISIBLE_DEVICES": gpus[i % len(gpus)]} if gpus else cores
        for i in range(count)
    ]


def wait_for_trials(
    workers: list[Worker],
    stopped_by: Callable[[], int],
    n_left: Callable[[], int],
    on_poll: Callable[[], None] = lambda: None,
    to_continue: str = TO_CONTINUE,
) -> None:
    """Wait for the workers; an error if they ended and trials are left.

    The other workers take over the trial of a worker that was killed.
    """
    number = 0
    while running := [worker for worker in workers if worker.is_running]:
        if not number and (number := stopped_by()):
            for worker in running:
                worker.stop(number)
        on_poll()
        time.sleep(TRIAL_POLL_SECONDS)
    if number:
        raise Interrupted(f"stopped and saved; {to_continue}", number)
    # Workers often fail for the same reason: print it once.
    for line in dict.fromkeys(line for worker in workers for line in worker.lines()):
        note(line)
    codes = [worker.process.returncode for worker in workers if worker.process.returncode]
    killed = sorted(signal.Signals(-code).name for code in codes if code < 0)
    if killed:
        note(f"{len(killed)} of {len(workers)} workers were killed ({', '.join(killed)})")
    if (left := n_left()) and killed:
        raise ResourceError(f"{left} trials are left and all workers have ended; {to_continue}")
    if left:
        raise click.exceptions.Exit(max(codes, default=1))


@dataclass
class ParallelTraining:
    """Tasks of `reproduce` that wait, run in their own process, or have ended."""

    waiting: list[Task]
    parallel: int  # processes at once
    stopped_by: Callable[[], int]
    on_finished: Callable[[Task], None]
    on_poll: Callable[[ParallelTraining], None] = lambda _: None
    limit_seconds: float | None = None  # then start nothing more, and save what is running
    running: dict[int, tuple[Task, Worker]] = field(default_factory=dict)  # by slot
    failed: dict[str, AllnegError] = field(default_factory=dict)  # by the name of a task
    signal_number: int = 0  # of the signal that stopped the training

    def __post_init__(self) -> None:
        self._start, self._count = time.monotonic(), len(self.waiting)
        self._epochs = _epochs_left(self.waiting)

    def progress(self) -> str:
        """How many tasks have ended, and how long the others take at the speed so far."""
        tasks = [*self.waiting, *(task for task, _ in self.running.values())]
        ended, left = f"{self._count - len(tasks)} of {self._count}", _epochs_left(tasks)
        if not 0 < left < self._epochs:
            return ended
        seconds = (time.monotonic() - self._start) * left / (self._epochs - left)
        return f"{ended}, about {timedelta(minutes=math.ceil(seconds / 60))} h left"

    def train(self) -> None:
        """Return when all tasks have ended, or after a signal or the time limit."""
        stopping = False
        slots = environments(self.parallel, {task.recipe.hardware.device for task in self.waiting})
        while self.running or (self.waiting and not stopping):
            self.signal_number = self.signal_number or self.stopped_by()
            seconds = time.monotonic() - self._start
            late = self.limit_seconds is not None and seconds > self.limit_seconds
            if not stopping and (late or self.signal_number):
                stopping = True
                for _, worker in self.running.values():
                    worker.stop(self.signal_number or signal.SIGTERM)
            for slot, environment in enumerate(slots):
                if slot in self.running and not self.running[slot][1].is_running:
                    self._collect(*self.running.pop(slot))
                if slot not in self.running and not stopping:
                    self._start_next(slot, environment)
            self.on_poll(self)
            time.sleep(_POLL_SECONDS)

    def _start_next(self, slot: int, environment: Mapping[str, str]) -> None:
        """Start or resume the next task whose folder is not in use."""
        in_use = {task.folder for task, _ in self.running.values()}
        task = next((task for task in self.waiting if task.folder not in in_use), None)
        if task is None:
            return
        self.waiting.remove(task)
        if task.state == "diverged":
            self.failed[task.name] = Diverged(f"{task.folder} has diverged; change its recipe")
        elif task.state == "finished":
            self.on_finished(task)
        else:
            self.running[slot] = task, Worker.start(task.arguments(), environment)

    def _collect(self, task: Task, worker: Worker) -> None:
        code = worker.process.returncode
        if task.state == "finished":
            self.on_finished(task)
        elif code in _INTERRUPTED:
            self.waiting.insert(0, task)  # it is saved and can continue
        else:
            reason = "; ".join(worker.lines()[-2:]) or "no message"
            self.failed[task.name] = error_for_exit_code(code, f"exit code {code}: {reason}")


def _epochs_left(tasks: Sequence[Task]) -> int:
    return sum(task.recipe.training.epochs - task.epochs for task in tasks)
