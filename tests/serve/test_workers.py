from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from typing import Any, TypeVar

import pytest

from allneg.predict.predictor import Predictor
from allneg.predict.results import Answers
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.server import ApiError
from allneg.serve.workers import Batcher, Workers

Result = TypeVar("Result")


class RecordingPredictor(Predictor):
    """A predictor that records the size of each batch and waits for `leave` before each."""

    def answers(self, queries, k=10, new=False):  # type: ignore[no-untyped-def]
        sizes.append((len(queries), k, new))
        assert leave.wait(10)
        return super().answers(queries, k, new)


sizes: list[tuple[int, int, bool]] = []
leave = threading.Event()


def run(main: Coroutine[Any, Any, Result]) -> Result:
    """Run in another thread: while a browser is open, this one has a loop that runs."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, main).result()


@pytest.fixture
def recording(loaded: LoadedRun) -> LoadedRun:
    sizes.clear()
    leave.clear()
    found = copy.copy(loaded)
    # Not vars: a calibration that was learned is cached there.
    parts = {f.name: getattr(loaded.predictor, f.name) for f in fields(loaded.predictor)}
    found.predictor = RecordingPredictor(**parts)
    return found


def test_a_job_returns_its_result_or_raises_its_error() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def main() -> None:
        workers = Workers()
        assert await workers.run(lambda: 3) == 3
        with pytest.raises(ValueError, match="no"):
            await workers.run(fail)
        assert await workers.run_long(lambda: 4) == 4
        assert workers.stop(seconds=5)

    run(main())


def test_no_more_jobs_run_at_once_than_there_are_threads() -> None:
    lock, most, now = threading.Lock(), 0, 0
    gate = threading.Barrier(2, timeout=10)

    def job() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()  # two jobs are here, and no third
        with lock:
            now -= 1

    async def main() -> None:
        workers = Workers(threads=2)
        await asyncio.gather(*(workers.run(job) for _ in range(10)))
        assert workers.stop(seconds=5)

    run(main())
    assert most == 2


def test_beyond_the_limit_a_job_is_busy_until_others_end() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=1, max_jobs=3)
        held = [asyncio.create_task(workers.run(gate.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError) as refused:
            await workers.run(lambda: 1)
        assert refused.value.code == "busy"
        gate.set()
        await asyncio.gather(*held)
        assert await workers.run(lambda: 1) == 1
        assert workers.stop(seconds=5)

    run(main())


def test_a_cancelled_job_counts_until_it_ends() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=1, max_jobs=1)
        left = asyncio.create_task(workers.run(gate.wait))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        with pytest.raises(ApiError):
            await workers.run(lambda: 1)  # the job is still running
        gate.set()
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if not workers._jobs:
                break
        assert await workers.run(lambda: 1) == 1
        assert workers.stop(seconds=5)

    run(main())


def test_long_jobs_leave_a_thread_for_short_ones() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=2)
        long = [asyncio.create_task(workers.run_long(gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(workers.run(lambda: 1), 5) == 1
        gate.set()
        await asyncio.gather(*long)
        assert workers.stop(seconds=5)

    run(main())


def test_waiting_long_jobs_are_limited_like_short_ones() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=2, max_jobs=3)
        long = [asyncio.create_task(workers.run_long(gate.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        with pytest.raises(ApiError):
            await workers.run_long(gate.wait)
        gate.set()
        await asyncio.gather(*long)
        assert await workers.run_long(lambda: 1) == 1
        assert workers.stop(seconds=5)

    run(main())


def test_stop_does_not_wait_for_a_busy_worker() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=1)
        asyncio.create_task(workers.run(gate.wait))  # noqa: RUF006
        await asyncio.sleep(0)
        assert not workers.stop(seconds=0.05)
        gate.set()

    run(main())


def _asked(
    recording: LoadedRun, plan: Callable[[Batcher], list[asyncio.Task[Answers]]]
) -> list[list]:
    async def main() -> list[list]:
        workers = Workers()
        tasks = plan(Batcher(workers, max_size=3))
        await asyncio.sleep(0.05)  # all later queries wait for the first
        leave.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert workers.stop(seconds=5)
        return [item.predictions if isinstance(item, Answers) else item for item in found]

    return run(main())


def test_waiting_queries_are_answered_in_one_batch(recording: LoadedRun, loaded: LoadedRun) -> None:
    names = loaded.predictor.graph.vocabulary.entities[:6]

    def plan(batcher: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(batcher.ask(recording, (side, name, "in"), 3, False))
            for name, side in zip(names, ("tail", "head") * 3, strict=True)
        ]

    found = _asked(recording, plan)
    assert sum(size for size, _, _ in sizes) == 6
    assert len(sizes) < 6
    assert max(size for size, _, _ in sizes) <= 3
    for name, side, answers in zip(names, ("tail", "head") * 3, found, strict=True):
        alone = loaded.predictor.answer([(name, "in")], side, 3)[0]  # type: ignore[arg-type]
        assert [item.entity for item in answers] == [item.entity for item in alone]
        assert [item.score for item in answers] == pytest.approx(
            [item.score for item in alone], rel=1e-5
        )


def test_queries_of_different_kinds_are_in_different_batches(recording: LoadedRun) -> None:
    kinds = [(1, False), (2, False), (1, False), (1, True), (2, False)]

    def plan(batcher: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(batcher.ask(recording, ("tail", "France", "in"), k, new))
            for k, new in kinds
        ]

    found = _asked(recording, plan)
    assert {(k, new) for _, k, new in sizes} == set(kinds)
    assert [len(item) for item in found] == [1, 2, 1, 1, 2]


def test_all_queries_of_a_failed_batch_fail_and_the_next_batch_runs(recording: LoadedRun) -> None:
    def plan(batcher: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(batcher.ask(recording, ("tail", "France", "in"), k, False))
            for k in (0, 2)
        ]

    bad, good = _asked(recording, plan)
    assert "at least 1" in str(bad)
    assert len(good) == 2
