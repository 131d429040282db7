"""The work behind the endpoints: jobs become requests for `Inference`, many at a time.

The threads that run `work` compute one at a time, since ranking takes all cores. What may take long is done outside of
that: waiting for the store, and reading histories, for a session that is built or for an explanation.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy.exc import OperationalError
from torch import Tensor

from marsrec.errors import DataError
from marsrec.recommender.explanation import Reading, ScoreSplit, read, sentences
from marsrec.recommender.inference import Answer, Past, Request, Vector, Window
from marsrec.recommender.session import Session
from marsrec.serve.histories import History
from marsrec.serve.models import Model

SHOWN_EVENTS = 200
"""Events of a history that a result lists, the latest; what comes before is summed up."""
_COMPUTING = threading.Lock()


class UnknownUserError(DataError):
    """A user has no events."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} has no events, neither saved with the model nor in the store.")


def _no_events() -> NDArray[np.int64]:
    return np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class RecommendJob:
    """Items for a user, or for a history."""

    model: Model
    user: str | None = None
    """Whose history it is; else `codes` and `times` are the history."""
    codes: NDArray[np.int64] = field(default_factory=_no_events)
    """Known items in order of time."""
    times: NDArray[np.int64] = field(default_factory=_no_events)
    k: int = 10
    """How many items; 0 only reads the history."""
    at: int | None = None
    """The moment of the request; None is `since`, or the latest event if that is later."""
    since: int = 0
    mask_seen: bool = True
    candidates: Tensor | None = None
    """Codes of the only items to recommend."""
    explain: bool = False

    def request(self, past: Past | None, latest: int, seen: NDArray[np.int64]) -> Request:
        """What `Inference` takes, for a history whose latest event was at `latest`."""
        at = self.model.inference.moment(self.at, latest, self.since)
        return Request(past, at, self.k, seen if self.mask_seen else None, self.candidates)


@dataclass(frozen=True)
class SimilarJob:
    """The items most similar to one."""

    model: Model
    code: int
    k: int

    def result(self) -> "JobResult":
        """What becomes of it."""
        return JobResult(self.model.inference.similar(self.code, self.k))


Job = RecommendJob | SimilarJob


@dataclass(frozen=True)
class JobResult:
    """What became of a job."""

    answer: Answer
    at: int = 0
    """The moment of the request, where it has one."""
    reading: Reading | None = None
    """With `explain`: what the model made of the latest events. None without any known item."""
    split: ScoreSplit | None = None
    """With `explain`: the scores in parts. None where they do not split."""
    sentences: list[str] | None = None
    """With `explain`: why each item has its score. None where scores do not split."""
    history: History | None = None
    """With `explain`, for a user: the latest events, unknown items included."""


def nobody_computes() -> bool:
    """Whether no thread is computing."""
    return not _COMPUTING.locked()


def build(jobs: Sequence[RecommendJob]) -> list[Exception | None]:
    """Have sessions at hand for users with long histories."""
    results: list[Exception | None] = []
    for job in jobs:
        try:
            assert job.user is not None
            job.model.sessions.build(job.user)
            results.append(None)
        except Exception as error:
            results.append(error)
    return results


def work(jobs: Sequence[Job]) -> list[JobResult | Exception]:
    """Results of jobs for any models; what goes wrong with one does not touch the others.

    Jobs to recommend are computed together, all others one by one.
    """
    results: dict[int, JobResult | Exception] = {}
    by_model: dict[int, list[tuple[int, RecommendJob]]] = {}
    for place, job in enumerate(jobs):
        if isinstance(job, RecommendJob):
            by_model.setdefault(id(job.model), []).append((place, job))
            continue
        try:
            with _COMPUTING:
                results[place] = job.result()
        except Exception as error:
            results[place] = error
    for group in by_model.values():
        places, own = zip(*group, strict=True)
        results.update(zip(places, _recommended(own), strict=True))
    return [results[place] for place in range(len(jobs))]


def _recommended(jobs: Sequence[RecommendJob]) -> list[JobResult | Exception]:
    """Results of jobs for one model: explained ones one by one, all others together."""
    model = jobs[0].model
    sessions: Mapping[str, Session | Exception] = {}
    store_away: Exception | None = None
    if users := [job.user for job in jobs if job.user is not None and not job.explain]:
        try:
            sessions = model.sessions.get(users)
        except Exception as error:  # histories in requests need no store
            store_away = error
    rows: list[Request | JobResult | Exception] = []
    for job in jobs:
        try:
            if job.user is not None and store_away is not None:
                raise store_away
            rows.append(_explained(job) if job.explain else _request(job, sessions))
        except Exception as error:
            if isinstance(error, OperationalError):  # one has waited for a store that is away: nobody else does
                store_away = error
            rows.append(error)
    with _COMPUTING:
        ranked = iter(_ranked(model, [row for row in rows if isinstance(row, Request)]))
    return [next(ranked) if isinstance(row, Request) else row for row in rows]


def _ranked(model: Model, requests: list[Request]) -> list[JobResult | Exception]:
    """Results of requests together; if that fails for all, of one after the other."""
    try:
        answers = model.inference.answer(requests, ranker=model.shortlist)
        return [JobResult(answer, request.at) for request, answer in zip(requests, answers, strict=True)]
    except Exception as error:
        return [error] if len(requests) == 1 else [result for one in requests for result in _ranked(model, [one])]


def _request(job: RecommendJob, sessions: Mapping[str, Session | Exception]) -> Request:
    if job.user is None:
        past = _window(job, job.codes, job.times)
        return job.request(past, 0 if past is None else past.latest, job.codes)
    if (session := sessions.get(job.user)) is None:
        raise UnknownUserError(job.user)
    if isinstance(session, Exception):
        raise session
    return job.request(session.past.view() if session.events else None, session.latest, session.seen_items())


def _explained(job: RecommendJob) -> JobResult:
    """An explained result. What was read of a long history is let go before another is read."""
    inference, history, codes, times = job.model.inference, None, job.codes, job.times
    if job.user is not None:  # a session does not keep its events
        if (history := job.model.sessions.history(job.user)) is None:
            raise UnknownUserError(job.user)
        codes, times = history.known()
    # A session of a recurrent model folds all events, and so they are all read for one who has a session.
    folded = job.user is not None and inference.network.recurrent
    window = _window(job, codes, times, whole=folded)
    request = job.request(None, 0 if window is None else window.latest, codes)
    reading = None
    if window is not None:
        reading = read(inference, window, request.at, folded=folded)
        request = replace(request, past=Vector(reading.user, window))
    split = said = None
    with _COMPUTING:
        (answer,) = inference.answer([request], ranker=job.model.shortlist)
        if reading is not None:
            split = reading.split(inference.network, torch.from_numpy(answer.codes), SHOWN_EVENTS)
    if reading is not None:
        recommender = job.model.recommender
        said = sentences(reading, inference.network, answer.codes, recommender.item_ids, recommender.unit)
        reading = reading.latest(SHOWN_EVENTS)
    listed = None if history is None else history.latest(SHOWN_EVENTS)
    return JobResult(answer, request.at, reading, split, said, listed)


def _window(
    job: RecommendJob, codes: NDArray[np.int64], times: NDArray[np.int64], whole: bool = False
) -> Window | None:
    if len(codes) == 0:
        return None
    return Window(codes, times) if whole else job.model.inference.window(codes, times)
