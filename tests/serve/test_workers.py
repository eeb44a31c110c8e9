from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from allneg.predict.predictor import Answers, Predictor
from allneg.serve.errors import ApiError
from allneg.serve.loaded_run import LoadedRun
from allneg.serve.workers import Batcher, Workers


class Watched(Predictor):
    """A predictor that notes the size of each batch, and waits for leave before each."""

    def ask(self, asked, k=10, new=False):  # type: ignore[no-untyped-def]
        sizes.append((len(asked), k, new))
        assert leave.wait(10)
        return super().ask(asked, k, new)


sizes: list[tuple[int, int, bool]] = []
leave = threading.Event()


@pytest.fixture
def watched(opened: LoadedRun) -> LoadedRun:
    sizes.clear()
    leave.clear()
    return replace(opened, predictor=Watched(**vars(opened.predictor)))


def test_a_job_gives_its_result_or_its_error() -> None:
    def fall() -> None:
        raise ValueError("no")

    async def main() -> None:
        workers = Workers()
        assert await workers.run(lambda: 3) == 3
        with pytest.raises(ValueError, match="no"):
            await workers.run(fall)
        assert await workers.run_long(lambda: 4) == 4
        assert workers.stop(seconds=5)

    asyncio.run(main())


def test_no_more_jobs_run_at_once_than_there_are_threads() -> None:
    lock, most, now = threading.Lock(), 0, 0
    gate = threading.Barrier(2, timeout=10)

    def job() -> None:
        nonlocal most, now
        with lock:
            now += 1
            most = max(most, now)
        gate.wait()  # two are here, and no third
        with lock:
            now -= 1

    async def main() -> None:
        workers = Workers(threads=2)
        await asyncio.gather(*(workers.run(job) for _ in range(10)))
        assert workers.stop(seconds=5)

    asyncio.run(main())
    assert most == 2


def test_past_the_limit_a_job_is_refused_and_later_taken_again() -> None:
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

    asyncio.run(main())


def test_a_client_that_left_frees_its_place_when_its_job_ends() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=1, max_jobs=1)
        left = asyncio.create_task(workers.run(gate.wait))
        await asyncio.sleep(0)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
        with pytest.raises(ApiError):
            await workers.run(lambda: 1)  # the job is still at work
        gate.set()
        for _ in range(1000):
            await asyncio.sleep(0.001)
            if not workers._jobs:
                break
        assert await workers.run(lambda: 1) == 1
        assert workers.stop(seconds=5)

    asyncio.run(main())


def test_a_long_job_leaves_a_thread_for_the_others() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=2)
        long = [asyncio.create_task(workers.run_long(gate.wait)) for _ in range(5)]
        await asyncio.sleep(0)
        assert await asyncio.wait_for(workers.run(lambda: 1), 5) == 1
        gate.set()
        await asyncio.gather(*long)
        assert workers.stop(seconds=5)

    asyncio.run(main())


def test_workers_that_are_busy_do_not_hold_up_the_end() -> None:
    gate = threading.Event()

    async def main() -> None:
        workers = Workers(threads=1)
        asyncio.create_task(workers.run(gate.wait))  # noqa: RUF006
        await asyncio.sleep(0)
        assert not workers.stop(seconds=0.05)
        gate.set()

    asyncio.run(main())


def _asked(
    watched: LoadedRun, plan: Callable[[Batcher], list[asyncio.Task[Answers]]]
) -> list[list]:
    async def main() -> list[list]:
        workers = Workers()
        tasks = plan(Batcher(workers, max_size=3))
        await asyncio.sleep(0.05)  # all that come now wait for the first
        leave.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert workers.stop(seconds=5)
        return [each.predictions if isinstance(each, Answers) else each for each in found]

    return asyncio.run(main())


def test_questions_that_wait_together_are_answered_together(
    watched: LoadedRun, opened: LoadedRun
) -> None:
    names = opened.predictor.graph.vocabulary.entities[:6]

    def plan(together: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(together.ask(watched, (side, name, "in"), 3, False))
            for name, side in zip(names, ("tail", "head") * 3, strict=True)
        ]

    found = _asked(watched, plan)
    assert sum(size for size, _, _ in sizes) == 6
    assert len(sizes) < 6
    assert max(size for size, _, _ in sizes) <= 3
    for name, side, answers in zip(names, ("tail", "head") * 3, found, strict=True):
        alone = opened.predictor.answer([(name, "in")], side, 3)[0]  # type: ignore[arg-type]
        assert [each.entity for each in answers] == [each.entity for each in alone]
        assert [each.score for each in answers] == pytest.approx(
            [each.score for each in alone], rel=1e-5
        )


def test_questions_of_another_kind_wait_for_a_batch_of_their_own(watched: LoadedRun) -> None:
    kinds = [(1, False), (2, False), (1, False), (1, True), (2, False)]

    def plan(together: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(together.ask(watched, ("tail", "France", "in"), k, new))
            for k, new in kinds
        ]

    found = _asked(watched, plan)
    assert {(k, new) for _, k, new in sizes} == set(kinds)
    assert [len(each) for each in found] == [1, 2, 1, 1, 2]


def test_a_batch_that_fails_tells_everyone_and_the_next_goes_on(watched: LoadedRun) -> None:
    def plan(together: Batcher) -> list[asyncio.Task[Answers]]:
        return [
            asyncio.create_task(together.ask(watched, ("tail", "France", "in"), k, False))
            for k in (0, 2)
        ]

    bad, good = _asked(watched, plan)
    assert "at least 1" in str(bad)
    assert len(good) == 2
