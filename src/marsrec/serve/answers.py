"""Many requests answered at once: user vectors, then the top-k of their scores for all items."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from sqlalchemy.exc import OperationalError
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.evaluation.ranking import top_k
from marsrec.nn.model import SequenceModel
from marsrec.recommender.session import FoldedEvents, Session
from marsrec.serve.jobs import Answer, Asked, EarlyError, Model, Similar, UnknownUserError
from marsrec.serve.live import History
from marsrec.serve.reading import Reading, read
from marsrec.serve.schemas import SHOWN_EVENTS
from marsrec.serve.shortlist import MAX_SHORT

_COMPUTING = threading.Lock()
"""The threads that answer rank one at a time, since ranking takes all cores. What may take long is done outside:
waiting for the store, and reading histories, for a session that is built or for an explanation."""


@dataclass
class _Row:
    """A request with what is needed to answer it. Exactly one of `reading`, `session` and `window` gives the vector."""

    asked: Asked
    at: int
    seen: NDArray[np.int64]
    reading: Reading | None = None
    session: Session | None = None
    window: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None
    history: History | None = None

    @property
    def cold(self) -> bool:
        """Whether there is no event to go by."""
        return self.reading is None and self.session is None and self.window is None


def answer(jobs: Sequence[Asked | Similar]) -> list[Answer | Exception]:
    """Answer requests of any models; what goes wrong with one does not touch the others."""
    results: dict[int, Answer | Exception] = {}
    groups: dict[int, tuple[Model, list[int]]] = {}
    for place, job in enumerate(jobs):
        if isinstance(job, Similar):
            with _COMPUTING:
                results[place] = _similar(job)
        else:
            groups.setdefault(id(job.model), (job.model, []))[1].append(place)
    for model, places in groups.values():
        asked = [job for place in places if isinstance(job := jobs[place], Asked)]
        results.update(zip(places, _answer(model, asked), strict=True))
    return [results[place] for place in range(len(jobs))]


def _similar(job: Similar) -> Answer:
    table = job.model.directions
    seen = torch.tensor([0, 1]), torch.tensor([job.code])
    scores, items = top_k(lambda rows: rows @ table.T, table[job.code : job.code + 1], job.k, seen=seen)
    return _made(0, "similarity", scores[0], items[0])


def _answer(model: Model, jobs: list[Asked]) -> list[Answer | Exception]:
    rows: list[_Row | Answer | Exception] = []
    sessions: Mapping[str, Session | Exception] = {}
    failed: Exception | None = None
    if users := [job.user for job in jobs if job.user is not None and not job.explain]:
        try:
            sessions = model.sessions.get(users)
        except Exception as error:  # the store may be away; histories in requests are answered all the same
            failed = error
    for job in jobs:
        try:
            if job.user is not None and failed is not None:
                raise failed
            rows.append(_explained_or_row(job, sessions))
        except Exception as error:
            if isinstance(error, OperationalError):  # one has waited for a store that is away: nobody else does
                failed = error
            rows.append(error)
    with _COMPUTING:
        found = iter(_each(model, [row for row in rows if isinstance(row, _Row)]))
    return [next(found) if isinstance(row, _Row) else row for row in rows]


def _each(model: Model, rows: list[_Row]) -> list[Answer | Exception]:
    """The top of each row; if that fails for all together, of one after the other."""
    try:
        return list(_best(model, rows))
    except Exception as error:
        return [error] if len(rows) == 1 else [outcome for row in rows for outcome in _each(model, [row])]


def _explained_or_row(job: Asked, sessions: Mapping[str, Session | Exception]) -> Answer | _Row:
    """The answer where it is to be explained: states of a long history are not kept while others are read."""
    row = _row(job, sessions)
    if row.reading is None:
        return row
    with _COMPUTING:
        return _best(job.model, [row])[0]


def _row(job: Asked, sessions: Mapping[str, Session | Exception]) -> _Row:
    length = job.model.recommender.settings.length
    network = job.model.network
    if job.user is None:
        assert job.codes is not None
        assert job.times is not None
        codes, times = job.codes, job.times
        row = _Row(job, _moment(job, times), codes)
        if len(codes) and job.explain:
            row.reading = read(network, codes[-length:], times[-length:], row.at, folded=False)
        elif len(codes):
            row.window = codes[-length:], times[-length:]
        return row
    if job.explain:  # a session does not keep its events
        if (history := job.model.sessions.history(job.user)) is None:
            raise UnknownUserError(job.user)
        codes, times = history.known()
        row = _Row(job, _moment(job, times), codes, history=history.latest(SHOWN_EVENTS))
        keep = slice(None) if network.recurrent else slice(-length, None)
        if len(codes):
            row.reading = read(network, codes[keep], times[keep], row.at, folded=network.recurrent)
        return row
    if (session := sessions.get(job.user)) is None:
        raise UnknownUserError(job.user)
    if isinstance(session, Exception):
        raise session
    seen = np.flatnonzero(np.unpackbits(session.seen, bitorder="little"))
    row = _Row(job, _moment(job, np.array([session.latest] if session.events else [], dtype=np.int64)), seen)
    if session.events:
        row.session = session
    return row


def _moment(job: Asked, times: NDArray[np.int64]) -> int:
    latest = int(times[-1]) if len(times) else 0
    if job.at is None:
        return max(job.since, latest)
    if job.at < latest:
        raise EarlyError(f"at ({job.at}) is earlier than the latest event ({latest}).")
    return job.at


def _best(model: Model, rows: list[_Row]) -> list[Answer]:
    """The top of each row."""
    network = model.network
    warm = [row for row in rows if not row.cold]
    vectors = _vectors(network, warm)
    made: dict[int, Answer] = {}

    def rank(group: list[_Row], users: Tensor, score: Callable[[Tensor], Tensor], source: str) -> None:
        """Rank for rows that share their candidates."""
        k = max(row.asked.k for row in group)
        scores, items = users.new_zeros(len(group), 0), torch.zeros(len(group), 0, dtype=torch.long)
        if k:
            hidden = [row.seen if row.asked.mask_seen else row.seen[:0] for row in group]
            offsets = np.concatenate([[0], np.cumsum([len(codes) for codes in hidden])])
            seen = torch.from_numpy(offsets), torch.from_numpy(np.concatenate(hidden))
            short = model.shortlist if source == "model" and group[0].asked.candidates is None else None
            if short is not None and k <= MAX_SHORT:
                scores, items = short.top_k(users, k, seen)
            else:
                scores, items = top_k(score, users, k, seen=seen, candidates=group[0].asked.candidates)
        for row, row_scores, row_items in zip(group, scores.cpu(), items.cpu(), strict=True):
            cut = row.asked.k
            found = _made(row.at, source, row_scores[:cut], row_items[:cut])
            if row.reading is not None:
                split = row.reading.split(network, torch.tensor(found.codes), SHOWN_EVENTS)
                found = replace(found, reading=row.reading.latest(SHOWN_EVENTS), split=split)
            made[id(row)] = replace(found, history=row.history)

    for group in _by_candidates(warm):
        rank([warm[place] for place in group], vectors[group], network.score, "model")
    if cold := [row for row in rows if row.cold]:
        counts = torch.from_numpy(model.recommender.item_counts.astype(np.float32))
        for row in cold:
            rank([row], counts[None], lambda scores: scores, "popularity")
    return [made[id(row)] for row in rows]


def _by_candidates(rows: list[_Row]) -> list[list[int]]:
    """Places of the rows that may get any item, together, and of the others one by one."""
    free = [place for place, row in enumerate(rows) if row.asked.candidates is None]
    bound = [[place] for place, row in enumerate(rows) if row.asked.candidates is not None]
    return [free, *bound] if free else bound


@torch.no_grad()
def _vectors(network: SequenceModel, rows: list[_Row]) -> Tensor:
    """User vectors (N, d): sessions of a recurrent model from their memory, all others in one padded batch."""
    table = network.items.weight
    vectors = table.new_empty(len(rows), table.shape[1])
    folded, windows = [], []
    for place, row in enumerate(rows):
        if row.reading is not None:
            vectors[place] = row.reading.user[0]
        elif row.session is not None and isinstance(row.session.past, FoldedEvents):
            folded.append(place)
        else:
            windows.append(place)
    if folded:
        memories = [past._memory() for place in folded if isinstance(past := _session(rows[place]).past, FoldedEvents)]
        together = tuple(torch.cat(parts) for parts in zip(*(readout for _, readout in memories), strict=True))
        now = torch.tensor([rows[place].at for place in folded], device=table.device)
        vectors[folded] = network.recall(((), together), now)
    if windows:
        vectors[windows] = network(_batch([_window(rows[p]) for p in windows], [rows[p].at for p in windows])).users
    return vectors


def _session(row: _Row) -> Session:
    assert row.session is not None
    return row.session


def _window(row: _Row) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The latest events of a row."""
    if row.window is not None:
        return row.window
    codes, times, count = _session(row).past.tensors
    kept = slice(len(codes) - int(count), None)
    return codes[kept].long().numpy(), times[kept].numpy()


def _batch(windows: list[tuple[NDArray[np.int64], NDArray[np.int64]]], moments: list[int]) -> Batch:
    """Histories as rows, padded on the right."""
    lengths = torch.tensor([len(codes) for codes, _ in windows])
    items = torch.zeros(len(windows), int(lengths.max()), dtype=torch.long)
    times = torch.zeros_like(items)
    for row, (codes, when) in enumerate(windows):
        items[row, : len(codes)] = torch.from_numpy(codes)
        times[row] = int(when[-1])
        times[row, : len(when)] = torch.from_numpy(when)
    return Batch(items, times, lengths, torch.zeros_like(items), torch.tensor(moments)[:, None].expand_as(times))


def _made(at: int, source: str, scores: Tensor, items: Tensor) -> Answer:
    kept = items > 0
    return Answer(at, source, items[kept].tolist(), scores[kept].tolist())
