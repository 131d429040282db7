"""Micro-batches: what comes meanwhile is worked on together, and a full queue refuses."""

import asyncio
import threading

import pytest

from marsrec.serve.batching import Batcher, OverloadError


def test_jobs_that_come_meanwhile_are_worked_on_together() -> None:
    sizes: list[int] = []
    first, go = threading.Event(), threading.Event()

    def work(jobs: list[int]) -> list[int]:
        sizes.append(len(jobs))
        first.set()
        go.wait(5)
        return [job * 10 for job in jobs]

    async def submit() -> list[list[int]]:
        tasks = [asyncio.create_task(batcher.submit([0]))]
        while not first.is_set():
            await asyncio.sleep(0.001)
        tasks += [asyncio.create_task(batcher.submit([number])) for number in range(1, 7)]
        await asyncio.sleep(0.01)
        go.set()
        return await asyncio.gather(*tasks)

    batcher = Batcher(work, most=4, waiting=100)
    batcher.start()
    assert asyncio.run(submit()) == [[10 * number] for number in range(7)]
    assert sizes == [1, 4, 2]
    batcher.close()


def test_a_full_queue_refuses_at_once_and_takes_all_or_nothing() -> None:
    begun, go = threading.Event(), threading.Event()

    def work(jobs: list[int]) -> list[int]:
        begun.set()
        go.wait(5)
        return jobs

    batcher = Batcher(work, most=1, waiting=3)
    batcher.start()

    async def submit() -> None:
        busy = asyncio.create_task(batcher.submit([1]))
        while not begun.is_set():
            await asyncio.sleep(0.001)
        waiting = asyncio.create_task(batcher.submit([2, 3]))
        await asyncio.sleep(0.01)
        with pytest.raises(OverloadError):
            await batcher.submit([4, 5])
        assert len(batcher) == 2
        last = asyncio.create_task(batcher.submit([6]))
        await asyncio.sleep(0.01)
        last.cancel()  # its caller went away
        go.set()
        assert [await busy, await waiting] == [[1], [2, 3]]
        assert await batcher.submit([7, 8, 9]) == [7, 8, 9]

    asyncio.run(submit())
    batcher.close()
    with pytest.raises(OverloadError):
        asyncio.run(batcher.submit([1]))


def test_an_error_is_that_of_its_job_or_of_all() -> None:
    def work(jobs: list[int]) -> list[int | Exception]:
        if 0 in jobs:
            raise BaseException("not even an Exception")
        return [ValueError(f"bad {job}") if job < 0 else job for job in jobs]

    batcher = Batcher(work, most=8, waiting=8, wait=0.01)
    batcher.start()

    async def submit() -> list[object]:
        waiting = [batcher.submit([1]), batcher.submit([-1]), batcher.submit([2])]
        return await asyncio.gather(*waiting, return_exceptions=True)

    one, bad, two = asyncio.run(submit())
    assert (one, two) == ([1], [2])
    assert str(bad) == "bad -1"
    with pytest.raises(RuntimeError, match="not even an Exception"):
        asyncio.run(batcher.submit([0]))
    assert asyncio.run(batcher.submit([5])) == [5]  # the thread goes on
    batcher.close()
