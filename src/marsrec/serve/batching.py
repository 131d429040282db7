"""Requests that come at the same time are worked on together, by one thread, from a queue that does not grow."""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


class OverloadError(Exception):
    """More waits than may wait."""


class Batcher(Generic[Job, Result]):
    """Gathers jobs and hands them to `work` in batches.

    Parameters
    ----------
    work : callable
        From jobs to their results, in the same order. A result that is an exception is raised where its job was
        submitted; one that `work` raises is raised for all jobs of the batch.
    most : int
        Jobs of a batch.
    waiting : int
        Jobs that may wait.
    wait : float
        Seconds that a batch waits to become full. With 0 it is made of what came while the last one was worked on.

    Examples
    --------
    >>> batcher = Batcher(lambda jobs: [job**2 for job in jobs], most=8, waiting=100)
    >>> batcher.start()
    >>> asyncio.run(batcher.submit([2, 3]))
    [4, 9]
    >>> batcher.close()
    """

    def __init__(
        self,
        work: Callable[[list[Job]], Sequence[Result | Exception]],
        *,
        most: int,
        waiting: int,
        wait: float = 0.0,
        worked: Callable[[int], None] = lambda size: None,
    ) -> None:
        self._work, self._most, self._waiting, self._wait, self._worked = work, most, waiting, wait, worked
        self._queue: deque[tuple[Job, Future[Result]]] = deque()
        self._change = threading.Condition()
        self._open = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether not even one more job can wait."""
        return len(self._queue) >= self._waiting

    def start(self) -> None:
        """Begin to work."""
        self._open = True
        self._thread.start()

    def close(self) -> None:
        """Finish what waits, and take nothing more."""
        with self._change:
            self._open = False
            self._change.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    async def submit(self, jobs: Sequence[Job]) -> list[Result]:
        """The results of some jobs, which wait together or not at all; raises OverloadError at once if they cannot."""
        futures: list[Future[Result]] = [Future() for _ in jobs]
        with self._change:
            if not self._open or len(self._queue) + len(jobs) > self._waiting:
                raise OverloadError
            self._queue.extend(zip(jobs, futures, strict=True))
            self._change.notify_all()
        outcomes = await asyncio.gather(*map(asyncio.wrap_future, futures), return_exceptions=True)
        results: list[Result] = []
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
            results.append(outcome)
        return results

    def _run(self) -> None:
        while batch := self._next():
            running = [(job, future) for job, future in batch if future.set_running_or_notify_cancel()]
            if not running:
                continue
            try:
                outcomes: Sequence[Result | Exception] = self._work([job for job, _ in running])
            except BaseException as error:  # also what is no Exception, such as a panic of polars: the thread goes on
                outcomes = [error if isinstance(error, Exception) else RuntimeError(repr(error))] * len(running)
            for (_, future), outcome in zip(running, outcomes, strict=True):
                if isinstance(outcome, Exception):
                    future.set_exception(outcome)
                else:
                    future.set_result(outcome)
            self._worked(len(running))

    def _next(self) -> list[tuple[Job, "Future[Result]"]]:
        """The next jobs; nothing once it is closed and all is done."""
        with self._change:
            while not self._queue and self._open:
                self._change.wait()
            until = time.monotonic() + self._wait
            while self._open and len(self._queue) < self._most and (left := until - time.monotonic()) > 0:
                self._change.wait(left)
            return [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]
