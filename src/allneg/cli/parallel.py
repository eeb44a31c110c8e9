"""Train the runs of `reproduce` in parallel, each in its own process."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from allneg.cli.output import note
from allneg.cli.workers import POLL_SECONDS, Worker, environments
from allneg.errors import AllnegError, Diverged, error_for_exit_code

if TYPE_CHECKING:
    from allneg.reproduce import Result, Task

_LINE_SECONDS = 30.0  # between two lines of progress
# The exit codes after a signal: 128 + its number, or minus its number before the handler was set.
_INTERRUPTED = (130, 143, -signal.SIGINT, -signal.SIGTERM)


@dataclass
class ParallelTraining:
    """Tasks that wait, run or have ended."""

    waiting: list[Task]
    parallel: int  # processes at once
    stopped_by: Callable[[], int]
    on_finished: Callable[[Task], None]
    on_poll: Callable[[ParallelTraining], None] = lambda _: None
    limit_seconds: float | None = None  # then start nothing more, and save what is running
    running: dict[int, tuple[Task, Worker]] = field(default_factory=dict)  # by slot
    failed: dict[str, AllnegError] = field(default_factory=dict)  # by the name of a task
    finished: int = 0
    signal_number: int = 0  # of the signal that stopped the training

    def train(self) -> None:
        """Return when all tasks have ended, or after a signal or the time limit."""
        start, stopping = time.monotonic(), False
        share_gpus = all(task.recipe.hardware.device in ("auto", "cuda") for task in self.waiting)
        slots = environments(self.parallel, share_gpus)
        while self.running or (self.waiting and not stopping):
            self.signal_number = self.signal_number or self.stopped_by()
            late = self.limit_seconds is not None and time.monotonic() - start > self.limit_seconds
            if not stopping and (late or self.signal_number):
                stopping = True
                for _, worker in self.running.values():
                    worker.process.send_signal(self.signal_number or signal.SIGTERM)
            for slot, environment in enumerate(slots):
                if slot in self.running and not self.running[slot][1].is_running:
                    self._collect(*self.running.pop(slot))
                if slot not in self.running and not stopping:
                    self._start_next(slot, environment)
            self.on_poll(self)
            time.sleep(POLL_SECONDS)

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
            self._finish(task)
        else:
            self.running[slot] = task, Worker.start_allneg(task.arguments(), environment)

    def _collect(self, task: Task, worker: Worker) -> None:
        code = worker.process.returncode
        if task.state == "finished":
            self._finish(task)
        elif code in _INTERRUPTED:
            self.waiting.insert(0, task)  # it is saved and can continue
        else:
            reason = "; ".join(worker.lines()[-2:]) or "no message"
            self.failed[task.name] = error_for_exit_code(code, f"exit code {code}: {reason}")

    def _finish(self, task: Task) -> None:
        self.finished += 1
        self.on_finished(task)


class ParallelProgress:
    """Progress of all tasks on stderr."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._total = sum(task.recipe.training.epochs for task in tasks)
        self._count = len(tasks)
        self._before = sum(task.epochs for task in tasks)  # done by earlier calls
        self._start = self._last_line = time.monotonic()

    def finished(self, task: Task, result: Result | None, training: ParallelTraining) -> None:
        entry = result.seed(task.seed) if result is not None else None
        if entry is None:
            return
        paper = f" (paper {task.cell.paper.mrr:.2f})" if task.cell.paper else ""
        reached = f"test MRR {entry['mrr']:.4f}{paper}, {entry['seconds']:.0f} s"
        ended = training.finished + len(training.failed)
        note(f"{ended} of {self._count}: {task.name}: {reached}; {self._left(training)}")

    def poll(self, training: ParallelTraining) -> None:
        """Print a line now and then."""
        if time.monotonic() - self._last_line < _LINE_SECONDS:
            return
        self._last_line = time.monotonic()
        running = [
            f"{task.name}, epoch {task.epochs} of {task.recipe.training.epochs}"
            for task, _ in training.running.values()
        ]
        note(f"{'; '.join(running) or 'waiting'}; {self._left(training)}")

    def _left(self, training: ParallelTraining) -> str:
        """The number of tasks left, and the time they take at the speed since the start."""
        tasks = [*training.waiting, *(task for task, _ in training.running.values())]
        left = sum(task.recipe.training.epochs - task.epochs for task in tasks)
        done = self._total - left - self._before
        if not left:
            return "nothing left"
        if done <= 0:
            return f"{len(tasks)} left"
        minutes = math.ceil((time.monotonic() - self._start) * left / done / 60)
        about = f"{minutes} min" if minutes < 120 else f"{minutes / 60:,.0f} h"
        return f"{len(tasks)} left, about {about}"
