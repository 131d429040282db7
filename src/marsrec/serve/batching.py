"""Requests that come at the same time are worked on together, from a queue that does not grow.

The work is done by a thread. Work that is shorter than the way to a thread and back is done in the loop, where no two
threads hinder each other in turn.
"""

import asyncio
import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")

SHORT = 16
"""Short jobs that are worked on before the loop does other things."""


class OverloadError(Exception):
    """More waits than may wait."""


class _Call(Generic[Result]):
    """A caller who waits, in a loop, for the results of some jobs."""

    __slots__ = ("future", "loop", "missing", "outcomes")

    def __init__(self, jobs: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[list[Result]] = self.loop.create_future()
        self.outcomes: list[Result | Exception | None] = [None] * jobs
        self.missing = jobs

    def take(self, place: int, outcome: Result | Exception) -> None:
        """Note what became of a job. The last one ends the waiting; the first error is raised where there are some."""
        self.outcomes[place] = outcome
        self.missing -= 1
        if self.missing or self.future.done():
            return
        for found in self.outcomes:
            if isinstance(found, Exception):
                self.future.set_exception(found)
                return
        self.future.set_result(self.outcomes)  # type: ignore[arg-type]


_Entry = tuple[Job, _Call[Result], int]
_Outcome = tuple[_Call[Result], int, Result | Exception]


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
    worked : callable
        Told the size of each batch.
    free : callable
        Whether short work can be done at once, and would not have to wait.

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
        free: Callable[[], bool] = lambda: True,
    ) -> None:
        self._free, self._short = free, deque[_Entry[Job, Result]]()
        self._work, self._most, self._waiting, self._wait, self._worked = work, most, waiting, wait, worked
        self._queue: deque[_Entry[Job, Result]] = deque()
        self._change = threading.Condition()
        self._open = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __len__(self) -> int:
        return len(self._queue) + len(self._short)

    @property
    def full(self) -> bool:
        """Whether not even one more job can wait."""
        return len(self) >= self._waiting

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

    async def submit(self, jobs: Sequence[Job], *, short: bool = False) -> list[Result]:
        """The results of some jobs, which wait together or not at all; raises OverloadError at once if they cannot.

        Short ones are worked on in the loop, with those of the other requests that have come with them, if nothing
        waits and nobody else is working.
        """
        call: _Call[Result] = _Call(len(jobs))
        entries = [(job, call, place) for place, job in enumerate(jobs)]
        with self._change:
            if not self._open or len(self) + len(jobs) > self._waiting:
                raise OverloadError
            if short and not self._wait and not self._queue and self._free():
                if not self._short:
                    call.loop.call_soon(self._at_once)
                self._short.extend(entries)
            else:
                self._queue.extend(entries)
                self._change.notify()
        return await call.future if jobs else []

    def _at_once(self) -> None:
        """Work on some of the short jobs, in the loop; it does other things before it comes to the next."""
        batch = [self._short.popleft() for _ in range(min(SHORT, len(self._short)))]
        if self._short:
            asyncio.get_running_loop().call_soon(self._at_once)
        _deliver(self._done(batch))

    def _run(self) -> None:
        while batch := self._next():
            by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome[Result]]] = {}
            for call, place, outcome in self._done(batch):
                by_loop.setdefault(call.loop, []).append((call, place, outcome))
            for loop, outcomes in by_loop.items():  # waking a loop for a batch costs as much as for a job
                with contextlib.suppress(RuntimeError):  # closed meanwhile
                    loop.call_soon_threadsafe(_deliver, outcomes)

    def _done(self, batch: Sequence[_Entry[Job, Result]]) -> list[_Outcome[Result]]:
        """What became of the jobs of a batch that somebody still waits for."""
        wanted = [entry for entry in batch if not entry[1].future.cancelled()]
        if not wanted:
            return []
        try:
            outcomes: Sequence[Result | Exception] = self._work([job for job, _, _ in wanted])
        except BaseException as error:  # also what is no Exception, such as a panic of polars: the thread goes on
            outcomes = [error if isinstance(error, Exception) else RuntimeError(repr(error))] * len(wanted)
        self._worked(len(wanted))
        return [(call, place, outcome) for (_, call, place), outcome in zip(wanted, outcomes, strict=True)]

    def _next(self) -> list[_Entry[Job, Result]]:
        """The next jobs; nothing once it is closed and all is done."""
        with self._change:
            while not self._queue and self._open:
                self._change.wait()
            until = time.monotonic() + self._wait
            while self._open and len(self._queue) < self._most and (left := until - time.monotonic()) > 0:
                self._change.wait(left)
            return [self._queue.popleft() for _ in range(min(self._most, len(self._queue)))]


def _deliver(outcomes: Sequence[_Outcome[Result]]) -> None:
    for call, place, outcome in outcomes:
        call.take(place, outcome)
