"""A few threads for all work, and batches of the queries that wait at the same time."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from allneg.graph.queries import Side
from allneg.predict.predictor import Answers
from allneg.serve.errors import ApiError
from allneg.serve.loaded_run import LoadedRun

T = TypeVar("T")
Query: TypeAlias = tuple[Side, str, str]  # side of the answer, known entity, relation

_MAX_DELAY = 0.003  # seconds that a batch waits for as many queries as the last one had


class Workers:
    """A thread pool that rejects new jobs while `max_jobs` are waiting or running."""

    def __init__(self, threads: int = 2, max_jobs: int = 64) -> None:
        self.max_jobs = max_jobs
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._jobs: set[concurrent.futures.Future[Any]] = set()
        self._long_jobs = asyncio.Semaphore(max(1, threads - 1))

    def check_busy(self, waiting: int) -> None:
        if waiting >= self.max_jobs:
            raise ApiError("busy", "too many requests are waiting; try again in a second")

    async def run(self, job: Callable[[], T]) -> T:
        """The result of a job, or its exception."""
        self.check_busy(len(self._jobs))
        future = self._pool.submit(job)
        self._jobs.add(future)
        future.add_done_callback(self._jobs.discard)
        return await asyncio.wrap_future(future)

    async def run_long(self, job: Callable[[], T]) -> T:
        """The same for a job of seconds or more: one thread stays free for short jobs."""
        async with self._long_jobs:
            return await self.run(job)

    def stop(self, seconds: float) -> bool:
        """Accept no more jobs; return whether the running ones ended within some seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not concurrent.futures.wait(self._jobs.copy(), seconds).not_done


@dataclass(frozen=True, eq=False)
class _Request:
    run: LoadedRun
    query: Query
    k: int
    new: bool
    answers: asyncio.Future[Answers]

    @property
    def kind(self) -> tuple[str, int, bool]:
        return self.run.id, self.k, self.new


class Batcher:
    """Answers the queries that arrive during a batch together, in the next batch.

    Most of the time goes into reading the entity table, which a batch reads once. A single
    query does not wait.
    """

    def __init__(self, workers: Workers, max_size: int = 32) -> None:
        self._workers, self._max_size = workers, max_size
        self._waiting: list[_Request] = []
        self._task: asyncio.Task[None] | None = None
        self._last_size = 1
        self._full = asyncio.Event()  # as many queries wait as the last batch had

    async def ask(self, run: LoadedRun, query: Query, k: int, new: bool) -> Answers:
        self._workers.check_busy(len(self._waiting))
        request = _Request(run, query, k, new, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        if len(self._waiting) >= self._last_size:
            self._full.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_all())
        return await request.answers

    async def _answer_all(self) -> None:
        while self._waiting:
            if len(self._waiting) < self._last_size:
                self._full.clear()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._full.wait(), _MAX_DELAY)
            kind = self._waiting[0].kind
            batch = [request for request in self._waiting if request.kind == kind]
            batch = batch[: self._max_size]
            self._waiting = [request for request in self._waiting if request not in batch]
            self._last_size = len(batch)
            await self._answer(batch)
            # Clients that got an answer may send their next query now.
            await asyncio.sleep(0)

    async def _answer(self, batch: list[_Request]) -> None:
        first, queries = batch[0], [request.query for request in batch]
        pending = (request.answers for request in batch)
        try:
            found = await self._workers.run(
                lambda: first.run.predictor.ask(queries, first.k, first.new)
            )
        except Exception as error:
            for future in pending:
                if not future.done():
                    future.set_exception(error)
            return
        for future, answers in zip(pending, found, strict=True):
            if not future.done():
                future.set_result(answers)
