"""Users' histories, and an LRU of their live sessions that catches up with the store at each request.

A user's history is what was saved with the model, and on top of it what the store has, in order of time; of equal times
the saved events come first, then the stored ones as they arrived. A session that has taken in the stored events up to
some number reads on from there. So an event costs the same however long the history is, and it does not matter which
process has written it. An event that belongs further back, or was removed, makes the session be built anew.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sqlalchemy.exc import OperationalError

from marsrec.data.histories import Vocabulary
from marsrec.recommender import Recommender
from marsrec.recommender.session import Session
from marsrec.serve.ids import encode
from marsrec.serve.store import Event, Store, Version

OVERHEAD = 4096
"""Bytes that a live session takes beside its numbers: objects of Python and torch, and its place in the table."""
LONG = 1000
"""Events that are not read while others wait."""
NOTHING: Version = (0, 0)
"""The version of a user of whom the store has nothing."""


class LongHistoryError(Exception):
    """A session has to be built from a long history first."""


@dataclass(frozen=True)
class History:
    """All events of a user in order of time, or the latest."""

    items: list[str]
    codes: NDArray[np.int64]
    """0 for items that the model does not know."""
    times: NDArray[np.int64]
    stored: NDArray[np.bool_]
    """Whether an event comes from the store; else it was saved with the model."""
    earlier: int = 0
    """How many more there are before these."""

    def latest(self, shown: int) -> "History":
        """The latest `shown` events."""
        items, codes, times = self.items[-shown:], self.codes[-shown:].copy(), self.times[-shown:].copy()
        return History(items, codes, times, self.stored[-shown:].copy(), self.earlier + len(self.items) - len(items))

    def known(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Codes and times of the events that the model knows the items of."""
        known = self.codes > 0
        return self.codes[known], self.times[known]


@dataclass
class _Live:
    session: Session
    version: Version
    """Which events of the store the session has seen, those of unknown items included."""


class Sessions:
    """Live sessions of a model's users, the ones used last.

    Sessions belong to the thread that gets them. Others may build sessions of long histories for it, or read histories.

    Parameters
    ----------
    recommender : Recommender
        The model, with the histories that were saved with it.
    store : Store
        What happened since.
    max_bytes : int
        What the sessions may take; at least one is kept.
    """

    def __init__(self, recommender: Recommender, store: Store, max_bytes: int) -> None:
        self.recommender, self.store = recommender, store
        self.most = max(1, max_bytes // (recommender.start().nbytes + OVERHEAD))
        self._live: OrderedDict[str, _Live] = OrderedDict()
        self._keeping = threading.Lock()
        self.built = 0
        """How many sessions were built from a whole history."""

    def __len__(self) -> int:
        return len(self._live)

    @property
    def user_ids(self) -> Vocabulary:
        """Raw ids of the users that were saved with the model."""
        histories = self.recommender.histories
        return histories.user_ids if histories is not None else _NOBODY

    def get(self, users: Sequence[str]) -> dict[str, Session | Exception]:
        """Sessions of these users as of now, or why one has none; unknown users are left out.

        The session of a long history has to be built first, which is LongHistoryError.
        Raises what the store raises when it is away, since waiting for it once is enough.
        """
        distinct = list(dict.fromkeys(users))
        versions = self.store.versions(distinct)
        found: dict[str, Session | Exception] = {}
        for user in distinct:
            version = versions.get(user, NOTHING)
            if version == NOTHING and not self._is_saved(user):
                self._live.pop(user, None)  # one who was forgotten
                continue
            try:
                found[user] = self._as_of(user, version)
            except OperationalError:
                raise
            except Exception as error:
                found[user] = error
        return found

    def _as_of(self, user: str, version: Version) -> Session:
        live = self._live.pop(user, None)  # what fails half way is not kept
        live = self._catch_up(user, live, version) if _leads_to(live, version) else self._anew(user, version)
        self._keep(user, live)
        return live.session

    def _keep(self, user: str, live: _Live) -> None:
        with self._keeping:
            self._live[user] = live
            while len(self._live) > self.most:
                self._live.popitem(last=False)

    def build(self, user: str) -> None:
        """Build the session of a long history, which is then there to get. Any thread may do it."""
        version = self.store.versions([user]).get(user, NOTHING)
        if (live := self._live.get(user)) is None or not _leads_to(live, version):  # nobody else has built it
            self._keep(user, self._build(user, version[0]))

    def history(self, user: str) -> History | None:
        """All events of a user; None if there is no such user."""
        return self._history(user, self.store.events(user))

    def _history(self, user: str, stored: list[Event]) -> History | None:
        base, base_times = self._saved(user)
        if not stored and len(base) == 0 and not self._is_saved(user):
            return None
        codes = encode([event.item for event in stored], self.recommender.item_ids)
        times = np.array([event.time for event in stored], dtype=np.int64)
        saved = set(zip(base.tolist(), base_times.tolist(), strict=True))
        new = [
            place for place, event in enumerate(zip(codes.tolist(), times.tolist(), strict=True)) if event not in saved
        ]
        items = [str(item) for item in self.recommender.item_ids.decode(base).to_list()]
        items += [stored[place].item for place in new]
        raised = np.maximum.accumulate(base_times)  # as `Recommender.start` does
        all_codes, all_times = np.append(base, codes[new]), np.append(raised, times[new])
        order = np.argsort(all_times, kind="stable")
        from_store = order >= len(base)
        return History([items[place] for place in order], all_codes[order], all_times[order], from_store)

    def _anew(self, user: str, version: Version) -> _Live:
        """A session from a whole history, if that is not long."""
        epoch, count = version
        if count + len(self._saved(user)[0]) > LONG:
            raise LongHistoryError
        return self._build(user, epoch)

    def _build(self, user: str, epoch: int) -> _Live:
        stored = self.store.events(user)
        history = self._history(user, stored)
        session = self.recommender.start()
        if history is not None:
            session.extend(*history.known())
        self.built += 1
        return _Live(session, (epoch, len(stored)))

    def _catch_up(self, user: str, live: _Live, version: Version) -> _Live:
        if version == live.version:
            return live
        (epoch, count), (_, seen) = version, live.version
        if count - seen > LONG:
            raise LongHistoryError
        events = self.store.events(user, after=seen, epoch=epoch)
        if len(events) < count - seen:  # some were removed meanwhile
            return self._anew(user, version)
        base, base_times = self._saved(user)
        order = np.argsort(base_times, kind="stable")
        base, base_times = base[order], base_times[order]
        codes = encode([event.item for event in events], self.recommender.item_ids)
        times = np.array([event.time for event in events], dtype=np.int64)
        new = [c > 0 and not _has(base, base_times, c, t) for c, t in zip(codes, times, strict=True)]
        known = np.array(new, dtype=bool)
        codes, times = codes[known], times[known]
        if len(times) and live.session.events and times.min() < live.session.latest:
            return self._anew(user, version)
        order = np.argsort(times, kind="stable")
        live.session.extend(codes[order], times[order])
        return _Live(live.session, (epoch, seen + len(events)))

    def _is_saved(self, user: str) -> bool:
        return bool(encode([user], self.user_ids)[0])

    def _saved(self, user: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return self.saved(int(encode([user], self.user_ids)[0]))

    def saved(self, code: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Codes and times that were saved with the model, in its order, of the user with this code."""
        histories = self.recommender.histories
        if code == 0 or histories is None:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        own = slice(histories.offsets[code - 1], histories.offsets[code])
        return histories.items[own].astype(np.int64), histories.times[own]


def _leads_to(live: _Live | None, version: Version) -> TypeGuard[_Live]:
    """Whether a session has to take in what was added, and nothing else, to be one of this version."""
    # A user without stored events has no epoch. Fewer events than before: an older copy of the store was put back.
    (epoch, count), (seen_epoch, seen) = version, NOTHING if live is None else live.version
    return live is not None and (epoch == seen_epoch or seen == 0) and count >= seen


def _has(codes: NDArray[np.int64], times: NDArray[np.int64], code: int, time: int) -> bool:
    """Whether an event is among these, which are in order of time."""
    first, last = np.searchsorted(times, [time, time + 1])
    return bool((codes[first:last] == code).any())


_NOBODY = Vocabulary(pl.Series([], dtype=pl.String))
