"""A few threads for all work, and batches of the queries that wait at the same time."""

import asyncio
import concurrent.futures
from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from allneg.graph.queries import Side
from allneg.predict.results import Answers
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import ApiError

T = TypeVar("T")
Query: TypeAlias = tuple[Side, str, str]  # side of the answer, known entity, relation
Request: TypeAlias = tuple[Query, asyncio.Future[Answers]]
Kind: TypeAlias = tuple[LoadedRun, int, bool]  # run, k, new: one batch answers one kind

_DELAY = 0.002  # seconds that a batch waits for more queries, if the last one had more


class Workers:
    """A thread pool that rejects new jobs while `max_jobs` are waiting or running."""

    def __init__(self, threads: int = 2, max_jobs: int = 64) -> None:
        self.max_jobs = max_jobs
        self._pool = concurrent.futures.ThreadPoolExecutor(threads)
        self._jobs: set[concurrent.futures.Future[Any]] = set()
        self._n_long = 0
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
        self.check_busy(self._n_long)
        self._n_long += 1
        try:
            async with self._long_jobs:
                return await self.run(job)
        finally:
            self._n_long -= 1

    def stop(self, seconds: float) -> bool:
        """Accept no more jobs; return whether the running ones ended within some seconds."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        return not concurrent.futures.wait(self._jobs.copy(), seconds).not_done


class Batcher:
    """Answers the queries that arrive during a batch together, in the next batch.

    Most of the time goes into reading the entity table, which a batch reads once. A single
    query does not wait.
    """

    def __init__(self, workers: Workers, max_size: int = 32) -> None:
        self._workers, self._max_size = workers, max_size
        self._waiting: dict[Kind, list[Request]] = {}
        self._n_waiting = 0
        self._last_size = 1
        self._task: asyncio.Task[None] | None = None

    async def ask(self, run: LoadedRun, query: Query, k: int, new: bool) -> Answers:
        self._workers.check_busy(self._n_waiting)
        future: asyncio.Future[Answers] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault((run, k, new), []).append((query, future))
        self._n_waiting += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._answer_all())
        return await future

    async def _answer_all(self) -> None:
        while self._waiting:
            if self._n_waiting < self._last_size:
                await asyncio.sleep(_DELAY)
            kind = next(iter(self._waiting))
            requests = self._waiting.pop(kind)
            batch, rest = requests[: self._max_size], requests[self._max_size :]
            if rest:
                self._waiting[kind] = rest
            self._last_size = len(batch)
            self._n_waiting -= len(batch)
            await self._answer(kind, batch)
            # Clients that got an answer may send their next query now.
            await asyncio.sleep(0)

    async def _answer(self, kind: Kind, batch: list[Request]) -> None:
        (run, k, new), queries = kind, [query for query, _ in batch]
        try:
            found = await self._workers.run(lambda: run.predictor.answers(queries, k, new))
        except Exception as error:
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), answers in zip(batch, found, strict=True):
            if not future.done():
                future.set_result(answers)
