"""A few threads for all the work, and queries that wait together answered together."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from allneg.graph.queries import Side
from allneg.serving.opened import Opened
from allneg.serving.predictor import Answers
from allneg.serving.refusal import Refusal

T = TypeVar("T")

_BUSY = "too many queries are waiting; ask again in a second"
_LINGER = 0.003  # seconds, at most, that a batch waits for as many as came last time


class Workers:
    """Threads that take jobs in turn; past `most_waiting` jobs a new one is refused.

    The threads are daemons: a job that takes minutes does not keep the service from ending.
    All but `stop` is called from the event loop.
    """

    def __init__(self, threads: int = 2, most_waiting: int = 64) -> None:
        self.most_waiting = most_waiting
        self._at_hand = 0
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._long = asyncio.Semaphore(max(1, threads - 1))
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(threads)]
        for each in self._threads:
            each.start()

    async def do(self, job: Callable[[], T]) -> T:
        """What the job returns, or raises."""
        if self._at_hand >= self.most_waiting:
            raise Refusal("busy", _BUSY)
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._at_hand += 1
        self._jobs.put(lambda: _run(job, loop, future))
        try:
            return await asyncio.shield(future)
        finally:
            # A job whose client has left still takes its turn.
            if future.done():
                self._at_hand -= 1
            else:
                future.add_done_callback(self._forget)

    async def do_long(self, job: Callable[[], T]) -> T:
        """The same for a job of seconds or more: a thread stays free for the others."""
        async with self._long:
            return await self.do(job)

    def stop(self, seconds: float) -> bool:
        """Take no more jobs; whether the last ended within so many seconds."""
        for _ in self._threads:
            self._jobs.put(None)
        end = time.monotonic() + seconds
        for each in self._threads:
            each.join(max(0.0, end - time.monotonic()))
        return not any(each.is_alive() for each in self._threads)

    def _forget(self, future: asyncio.Future[Any]) -> None:
        self._at_hand -= 1
        if not future.cancelled():
            future.exception()  # nobody is left to be told

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _run(job: Callable[[], T], loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
    try:
        result = job()
    except Exception as error:
        _tell(loop, future, future.set_exception, error)
    else:
        _tell(loop, future, future.set_result, result)


def _tell(
    loop: asyncio.AbstractEventLoop,
    future: asyncio.Future[T],
    how: Callable[[Any], None],
    what: object,
) -> None:
    try:
        loop.call_soon_threadsafe(lambda: None if future.done() else how(what))
    except RuntimeError:
        return  # the loop has ended meanwhile, and with it whoever asked


@dataclass(frozen=True)
class _Waiting:
    opened: Opened
    query: tuple[Side, str, str]
    k: int
    new: bool
    future: asyncio.Future[Answers]

    @property
    def kind(self) -> tuple[str, int, bool]:
        return self.opened.id, self.k, self.new


class Together:
    """Queries that wait while others are answered go as one batch.

    Reading the entity table takes most of the time, and a batch reads it once. A lone query
    does not wait.
    """

    def __init__(self, workers: Workers, most: int = 32) -> None:
        self._workers, self._most = workers, most
        self._waiting: list[_Waiting] = []
        self._task: asyncio.Task[None] | None = None
        self._last = 1  # queries in the last batch
        self._full = asyncio.Event()  # as many wait as were in the last batch

    async def ask(self, opened: Opened, query: tuple[Side, str, str], k: int, new: bool) -> Answers:
        if len(self._waiting) >= self._workers.most_waiting:
            raise Refusal("busy", _BUSY)
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(opened, query, k, new, future))
        if len(self._waiting) >= self._last:
            self._full.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())
        return await future

    async def _drain(self) -> None:
        while self._waiting:
            await self._linger()
            kind = self._waiting[0].kind
            batch = [each for each in self._waiting if each.kind == kind][: self._most]
            chosen = set(map(id, batch))
            self._waiting = [each for each in self._waiting if id(each) not in chosen]
            self._last = len(batch)
            await self._answer(batch)
            # Those who were answered may ask again at once: hear them before going on.
            await asyncio.sleep(0)

    async def _linger(self) -> None:
        """Wait a moment for as many queries as came together last time."""
        self._full.clear()
        if len(self._waiting) < self._last:
            try:
                await asyncio.wait_for(self._full.wait(), _LINGER)
            except TimeoutError:
                return

    async def _answer(self, batch: list[_Waiting]) -> None:
        first = batch[0]
        queries = [each.query for each in batch]
        try:
            found = await self._workers.do(
                lambda: first.opened.predictor.ask(queries, first.k, first.new)
            )
        except Exception as error:
            for each in batch:
                if not each.future.done():
                    each.future.set_exception(error)
            return
        for each, answers in zip(batch, found, strict=True):
            if not each.future.done():
                each.future.set_result(answers)
