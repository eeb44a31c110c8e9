"""Runs trained side by side, each by a process of its own."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from allneg.cli.say import note
from allneg.cli.workers import Worker, shares
from allneg.errors import AllnegError, Diverged, error_for_exit_code
from allneg.reproduce import Result, Task

_SECONDS_A_LOOK = 0.1
_SECONDS_A_LINE = 30.0
# Told to stop: 128 + the signal's number, or minus that where it did not listen yet.
_CUT_OFF = (130, 143, -signal.SIGINT, -signal.SIGTERM)


@dataclass
class Trainings:
    """Tasks on their way from waiting through at work to ended."""

    waiting: list[Task]
    parallel: int  # at work at once
    stopped_by: Callable[[], int]
    ended: Callable[[Task], None]  # told of each that is finished
    looked: Callable[[Trainings], None] = lambda _: None  # told now and then
    limit_seconds: float | None = None  # then nothing is begun, and what is at work is saved
    at_work: dict[int, tuple[Task, Worker]] = field(default_factory=dict)  # by seat
    failed: dict[str, AllnegError] = field(default_factory=dict)  # a task's name: why
    finished: int = 0
    signal_number: int = 0  # that ended it before its time

    def train(self) -> None:
        """Return when all have ended, or when a signal or the limit has."""
        began, told = time.monotonic(), False
        seats = shares(self.parallel, self._shares_gpus())
        while self.at_work or (self.waiting and not told):
            self.signal_number = self.signal_number or self.stopped_by()
            late = self.limit_seconds is not None and time.monotonic() - began > self.limit_seconds
            if not told and (late or self.signal_number):
                told = True
                for _, worker in self.at_work.values():
                    worker.process.send_signal(self.signal_number or signal.SIGTERM)
            for seat, environment in enumerate(seats):
                self._clear(seat)
                if seat not in self.at_work and not told:
                    self._fill(seat, environment)
            self.looked(self)
            time.sleep(_SECONDS_A_LOOK)

    def _fill(self, seat: int, environment: Mapping[str, str]) -> None:
        """Begin the next task, or one that was cut off; those that need no training end here."""
        busy = {task.folder for task, _ in self.at_work.values()}
        task = next((each for each in self.waiting if each.folder not in busy), None)
        if task is None:
            return
        self.waiting.remove(task)
        if task.state == "diverged":
            self.failed[task.name] = Diverged(f"{task.folder} has diverged; change its recipe")
        elif task.state == "finished":
            self._end(task)
        else:
            command = [sys.executable, "-m", "allneg", *task.arguments()]
            command += ["--worker-of", str(os.getpid())]
            self.at_work[seat] = task, Worker.start(command, environment)

    def _clear(self, seat: int) -> None:
        """Free a seat whose process has gone."""
        if seat not in self.at_work or self.at_work[seat][1].is_at_work:
            return
        task, worker = self.at_work.pop(seat)
        if task.state == "finished":
            self._end(task)
        elif worker.process.returncode in _CUT_OFF:
            self.waiting.insert(0, task)  # saved, to go on another time
        else:
            said = "; ".join(worker.lines()[-2:]) or "it said nothing"
            code = worker.process.returncode
            self.failed[task.name] = error_for_exit_code(code, f"exit code {code}: {said}")

    def _end(self, task: Task) -> None:
        self.finished += 1
        self.ended(task)

    def _shares_gpus(self) -> bool:
        return all(task.recipe.hardware.device in ("auto", "cuda") for task in self.waiting)


class Shown:
    """Progress over the whole list, on stderr."""

    def __init__(self, left: Sequence[Task]) -> None:
        self._total = sum(task.recipe.training.epochs for task in left)
        self._count = len(left)
        self._before = sum(task.epochs for task in left)  # of earlier calls
        self._began = self._line = time.monotonic()

    def ended(self, task: Task, result: Result | None, trainings: Trainings) -> None:
        entry = result.seed(task.seed) if result is not None else None
        if entry is None:
            return
        paper = f" (paper {task.cell.paper.mrr:.2f})" if task.cell.paper else ""
        said = f"test MRR {entry['mrr']:.4f}{paper}, {entry['seconds']:.0f} s"
        ended = trainings.finished + len(trainings.failed)
        note(f"{ended} of {self._count}: {task.name}: {said}; {self._left(trainings)}")

    @contextlib.contextmanager
    def bar(self, quiet: bool) -> Iterator[Callable[[Trainings], None]]:
        if quiet:
            yield lambda _: None
        elif not sys.stderr.isatty():
            yield self._say
        else:
            from rich.console import Console
            from rich.status import Status

            with Status("", console=Console(stderr=True)) as status:
                yield lambda trainings: status.update(self._line_of(trainings))

    def _say(self, trainings: Trainings) -> None:
        if time.monotonic() - self._line >= _SECONDS_A_LINE:
            self._line = time.monotonic()
            note(self._line_of(trainings))

    def _line_of(self, trainings: Trainings) -> str:
        busy = [
            f"{task.name}, epoch {task.epochs} of {task.recipe.training.epochs}"
            for task, _ in trainings.at_work.values()
        ]
        return f"{'; '.join(busy) or 'waiting'}; {self._left(trainings)}"

    def _left(self, trainings: Trainings) -> str:
        """The time left, if the rest goes as what was done since this call began."""
        waiting = [*trainings.waiting, *(task for task, _ in trainings.at_work.values())]
        left = sum(task.recipe.training.epochs - task.epochs for task in waiting)
        done = self._total - left - self._before
        seconds = time.monotonic() - self._began
        if not left:
            return "nothing left"
        if done <= 0:
            return f"{len(waiting)} left"
        minutes = math.ceil(seconds * left / done / 60)
        about = f"{minutes} min" if minutes < 120 else f"{minutes / 60:,.0f} h"
        return f"{len(waiting)} left, about {about}"
