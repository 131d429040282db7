"""All that a running server holds, and the way from what callers send to what jobs are made of."""

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from starlette.concurrency import run_in_threadpool

from marsrec.data.histories import Vocabulary
from marsrec.data.times import END_OF_TIME, MODERN, PER_SECOND
from marsrec.errors import SettingsError
from marsrec.serve.batching import Batcher, OverloadError
from marsrec.serve.histories import LongHistoryError
from marsrec.serve.ids import as_text, codes_of, encode
from marsrec.serve.metrics import Family, Metrics, exposition
from marsrec.serve.models import Model, Models
from marsrec.serve.refusals import RefusalError
from marsrec.serve.schemas import GivenEvent
from marsrec.serve.settings import ServeSettings
from marsrec.serve.store import Event, LockedError, Removal, Write
from marsrec.serve.worker import Job, JobResult, RecommendJob, build, nobody_computes, work

log = logging.getLogger(__name__)

SEARCHES = 4
"""Searches at a time; the store has more connections than these take."""
LOCKED = 4
"""Writes for users whom somebody else has locked in the database, at a time."""
LOCKED_WAITING = 64
"""Such writes that may wait."""
LOCKED_SECONDS = 5.0
"""How long each of them waits for its user."""
CHECK_SECONDS = 1.0
"""How long the store is taken for what it was when it was last checked."""
TRIES = 5
"""How often a long history is read again because more has happened meanwhile."""

T = TypeVar("T")


class Others(Protocol):
    """The other workers on the same port, if there are any."""

    def attend(self, service: "Service") -> None:
        """Begin to do what the others ask this one for."""

    async def ask(self, what: str, **arguments: Any) -> Any:
        """Have something done by all workers, this one included."""


class Service:
    """Models, store, and the threads that answer requests and write events."""

    def __init__(self, settings: ServeSettings, others: Others | None = None) -> None:
        self.settings, self.metrics, self.others = settings, Metrics(), others
        self.models = Models(settings)
        self.store = self.models.store
        batches = self.metrics.batches

        def working(name: str) -> Batcher[Job, JobResult]:
            return Batcher(
                work,
                most=settings.batch,
                waiting=settings.queue,
                wait=settings.batch_wait_ms / 1000,
                worked=batches.labels(name).observe,
                free=nobody_computes,
            )

        # Requests for users wait for the store; those that need no store do not wait for one that is away. Explaining
        # reads whole histories; nobody else waits for that either.
        self.answers, self.users, self.explained = map(working, ("answers", "users", "explained"))
        # Posts that come at the same time share a transaction, and so the time that the disk takes.
        self.writes: Batcher[Write, int] = Batcher(
            self.store.write, most=settings.batch, waiting=settings.queue, worked=batches.labels("writes").observe
        )
        # A long history takes a while to be read; others need not wait for its user's session.
        self.built: Batcher[RecommendJob, None] = Batcher(
            build, most=1, waiting=settings.queue, worked=batches.labels("built").observe
        )
        self._searching = asyncio.Semaphore(SEARCHES)
        self._locked: Counter[str] = Counter()
        self._unlocking = asyncio.Semaphore(LOCKED)
        self._checking: asyncio.Task[None] | None = None
        self._checked = 0.0

    @property
    def _batchers(self) -> dict[str, Batcher[Any, Any]]:
        return {
            "answers": self.answers,
            "users": self.users,
            "built": self.built,
            "explained": self.explained,
            "writes": self.writes,
        }

    def start(self) -> None:
        """Begin to work."""
        for batcher in self._batchers.values():
            batcher.start()

    def close(self) -> None:
        """Finish what was begun."""
        for batcher in self._batchers.values():
            batcher.close()
        self.store.close()

    async def search(self, look: Callable[[], T]) -> T:
        """Search in another thread; few do at once, so that they leave connections of the store for others."""
        async with self._searching:
            return await run_in_threadpool(look)

    async def recommended(self, job: RecommendJob) -> JobResult:
        """What becomes of a job for a user; for one with a long history its session is built first, beside others."""
        if job.explain:
            return (await self.explained.submit([job]))[0]
        for _ in range(TRIES):
            try:
                return (await self.users.submit([job]))[0]
            except LongHistoryError:
                await self.built.submit([job])
        raise OverloadError

    async def write(self, user: str, change: Sequence[Event] | Removal) -> int:
        """Keep or forget events of a user: together with others, or alone if somebody else has locked the user."""
        if user not in self._locked:
            with contextlib.suppress(LockedError):
                return (await self.writes.submit([(user, change)]))[0]
        if self._locked.total() >= LOCKED_WAITING:
            raise OverloadError
        self._locked[user] += 1
        try:
            async with self._unlocking:
                (outcome,) = await run_in_threadpool(self.store.write, [(user, change)], LOCKED_SECONDS)
        finally:
            self._locked[user] -= 1
            self._locked += Counter()  # without those of whom nobody waits any more
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def check(self) -> None:
        """Raise if the store cannot keep an event. It is tried once a second, for all who ask meanwhile."""
        now = asyncio.get_running_loop().time()
        check = self._checking
        # Only what went well is remembered: a store that is back is known at once.
        if check is None or (check.done() and (check.exception() or now - self._checked > CHECK_SECONDS)):
            check = self._checking = asyncio.create_task(run_in_threadpool(self.store.check))
            self._checked = now
        await asyncio.shield(check)

    def facts(self) -> str:
        """What is served, in a line."""
        return f"Models: {', '.join(self.models.names)}. Events in {self.store.place}: {self.store.count():,}."

    async def reload(self, name: str | None) -> list[str]:
        """Load one model, or all, anew, in all workers or in none, and return their names."""
        try:
            if self.others is not None:
                names: list[str] = await self.others.ask("reload", model=name)
            else:
                names = [model.name for model in await run_in_threadpool(self.models.reload, name)]
                log.info(f"Loaded anew: {', '.join(names)}.")
        except Exception as error:
            self.metrics.reloads.labels("refused").inc()
            if self.others is None:  # else the supervisor says so
                log.info(f"The models stay as they are: {error}")
            raise
        self.metrics.reloads.labels("done").inc()
        return names

    def measured(self) -> list[Family]:
        """What this worker has measured of itself."""
        self.measure()
        return self.metrics.families()

    async def measurements(self) -> bytes:
        """What all workers have measured of themselves, summed up, as Prometheus reads it."""
        return exposition([self.measured()] if self.others is None else await self.others.ask("measure"))

    def full(self, path: str) -> bool:
        """Whether a request would only be read to be refused."""
        return (path == "/v1/recommend" and self.answers.full) or (path.endswith("/events") and self.writes.full)

    def measure(self) -> None:
        """Bring gauges up to date."""
        for name, batcher in self._batchers.items():
            self.metrics.waiting.labels(name).set(len(batcher))
        for name in self.models.names:
            sessions = self.models.get(name).sessions
            self.metrics.sessions.labels(name).set(len(sessions))
            self.metrics.built.labels(name).set(sessions.built)

    def model(self, name: str | None) -> Model:
        """The model of a name."""
        try:
            return self.models.get(name)
        except KeyError:
            known = ", ".join(self.models.names)
            raise RefusalError(404, "unknown_model", f"No model is called {name!r}.", f"Known are: {known}.") from None

    def moment(self, value: float | str) -> int:
        """A moment in the unit of the models."""
        unit = self.models.unit
        second = PER_SECOND[unit]
        if type(value) is int and MODERN * second <= value < END_OF_TIME * second:
            return value  # which most are, and takes nothing of what the others take
        try:
            return self.models.get().recommender.instant(value)
        except (SettingsError, ValueError, OverflowError) as error:
            reason = str(error)[:500]
        remedy = f"Give an integer in {unit}, or a date such as 2026-01-31T12:00:00Z, from 1970 to 2100."
        raise RefusalError(422, "bad_moment", reason, remedy)

    def when(self, model: Model, at: float | str | None) -> tuple[int | None, int]:
        """The moment that a request names, or None, and from when on it is made otherwise: not before the latest event.

        The present is not before an event either: the clock of who sent it may be ahead.
        """
        at = self.settings.at if at is None else at
        if at is None:
            return None, model.recommender.log_end
        moment = self.moment(at)
        return (None if isinstance(at, str) and at.strip() == "now" else moment), moment

    def posted(self, given: Sequence[tuple[int | str, float | str | None]]) -> list[Event]:
        """Events as the store keeps them. Those without a time get the present one; none may be far ahead of it."""
        recommender = self.models.get().recommender
        now = recommender.instant("now")
        latest = max(now, recommender.log_end) + self.settings.future * PER_SECOND[recommender.unit]
        events = [
            Event(as_text(item, recommender.item_ids), now if time is None else self.time(time)) for item, time in given
        ]
        for place, event in enumerate(events):
            if event.time > latest:
                raise RefusalError(
                    422,
                    "in_future",
                    f"body.events.{place}.time: more than {self.settings.future:,} seconds ahead of the server's time.",
                    "Send the time at which it happened, or none; a server with a greater --future takes it.",
                )
        return events

    def event(self, item: int | str, time: float | str) -> Event:
        """An event as the store keeps it."""
        return Event(as_text(item, self.models.get().recommender.item_ids), self.time(time))

    def time(self, value: float | str) -> int:
        """The time of an event in the unit of the models."""
        if isinstance(value, str) and value.strip() == "now":
            raise RefusalError(
                422, "bad_moment", "An event at 'now' would be another one each time it is sent.", "Give its time."
            )
        return self.moment(value)

    def history(self, model: Model, given: Sequence[GivenEvent]) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Codes and times of the known items in order of time, and how many events are of unknown items."""
        codes = codes_of([event.item for event in given], model.recommender.item_ids)
        times = np.array([self.time(event.time) for event in given], dtype=np.int64)
        order = np.argsort(times, kind="stable")
        order = order[codes[order] > 0]
        return codes[order], times[order], len(codes) - len(order)

    def candidates(self, model: Model, given: Sequence[int | str] | None) -> tuple[torch.Tensor | None, int]:
        """Codes of candidates, and how many are unknown."""
        if given is None:
            return None, 0
        item_ids = model.recommender.item_ids
        codes = codes_of(given, item_ids)
        known = codes[codes > 0]
        if len(known) == 0:
            raise RefusalError(
                422, "unknown_candidates", "None of the candidates is known.", "GET /v1/items?search= finds items."
            )
        return torch.from_numpy(np.unique(known)), len(codes) - len(known)

    @property
    def user_ids(self) -> Vocabulary:
        """What kind users' ids are of, for all models alike: the store is one."""
        return self.models.user_ids

    def item(self, model: Model, text: str) -> int:
        """Code of a known item."""
        item_ids = model.recommender.item_ids
        code = int(encode([as_text(text, item_ids)], item_ids)[0])
        if code == 0:
            raise RefusalError(
                404, "unknown_item", f"The model knows no item {text!r}.", "GET /v1/items?search= finds items."
            )
        return code
