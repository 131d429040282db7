"""Live sessions: a user's history as a memory of fixed size that takes in events as they happen.

With a recurrent encoder (Mamba, GRU) and a readout that streams, a new event and a request cost the same after ten
events and after a hundred thousand. For other models the memory is the latest events, and a request computes from them.
"""

from __future__ import annotations

import hashlib
import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.compute.threads import one_thread
from marsrec.errors import DataError, warn
from marsrec.recommender.explanation import PIECE
from marsrec.recommender.html import of_session
from marsrec.recommender.inference import SHARED_EVENTS, Folded, Inference, Past, Window, bare
from marsrec.recommender.inputs import NAMELESS, is_one
from marsrec.recommender.persistence import as_bytes

if TYPE_CHECKING:
    from marsrec.recommender import Recommender

HEADER = struct.Struct("<8s8s8sqq")
"""Start of a serialised session: magic, fingerprint of the model, checksum, number of events, time of the latest."""
MAGIC = b"marsrec1"
FEW_EVENTS = 64
"""Up to so many events at a time are taken in by the model's fast form; of more, torch computes many at once."""


_NAMELESS = pl.Series([NAMELESS])


class Remembered(ABC):
    """What a session keeps of its events."""

    tensors: tuple[Tensor, ...]
    """All of it, always of the same shapes."""

    @abstractmethod
    def add(self, codes: Tensor, times: Tensor) -> None:
        """Take in (L,) events."""

    @abstractmethod
    def view(self) -> Past:
        """The same as `Inference.vectors` takes it."""


class FoldedEvents(Remembered):
    """All events, folded into the memory of a recurrent model."""

    def __init__(self, inference: Inference) -> None:
        self.network, self.live = inference.network, inference.live
        encoded, read = self.network.start(1)
        self.tensors, self.encoded = encoded + read, len(encoded)

    def add(self, codes: Tensor, times: Tensor) -> None:
        """See `Remembered.add`."""
        memory = self.view().memory
        if self.live is not None and len(codes) <= FEW_EVENTS:
            found = self.live[0]((bare(memory[0]), bare(memory[1])), codes.numpy(), times.numpy())
            self.tensors = tuple(torch.from_numpy(np.array(part))[None] for half in found for part in half)
        else:
            encoded, read = self.network.resume(memory, codes[None], times[None])
            self.tensors = tuple(part.clone() for part in encoded + read)  # not views that keep all events alive

    def view(self) -> Folded:
        """See `Remembered.view`."""
        return Folded((self.tensors[: self.encoded], self.tensors[self.encoded :]))


class LatestEvents(Remembered):
    """The latest events themselves, for models that have no state to go on from."""

    def __init__(self, length: int) -> None:
        self.length = length
        zeros = torch.zeros(length, dtype=torch.int64)
        self.tensors = (zeros.int(), zeros, zeros[0].clone())  # codes and times, the newest last, and their number

    def add(self, codes: Tensor, times: Tensor) -> None:
        """See `Remembered.add`."""
        items, moments, count = self.tensors
        self.tensors = (
            torch.cat([items, codes.int()])[-self.length :].clone(),
            torch.cat([moments, times])[-self.length :].clone(),
            (count + len(codes)).clamp(max=self.length),
        )

    def view(self) -> Window:
        """See `Remembered.view`."""
        codes, times, count = self.tensors
        kept = slice(len(codes) - int(count), None)
        return Window(codes[kept].long().cpu().numpy(), times[kept].cpu().numpy())


class Session:
    """One user, live: add events as they happen, and ask at any time. `Recommender.start` makes one.

    Examples
    --------
    >>> session = recommender.start([("tea", 1_600_000_000)])  # doctest: +SKIP
    >>> session.add("milk", 1_600_000_060)  # doctest: +SKIP
    >>> session.recommend(k=5)  # doctest: +SKIP
    """

    def __init__(self, recommender: Recommender) -> None:
        network = recommender.network
        self.recommender = recommender
        length = recommender.settings.length
        self.past: Remembered = FoldedEvents(recommender.inference) if network.recurrent else LatestEvents(length)
        self.seen: NDArray[np.uint8] = np.zeros(math.ceil((len(recommender.item_ids) + 1) / 8), dtype=np.uint8)
        self.events, self.latest = 0, 0
        self.model = recommender.fingerprint()

    def __repr__(self) -> str:
        kind = "all events, folded" if self.recurrent else "the latest events"
        return f"<Session: {self.events:,} events ({kind}), the latest at {self.latest} {self.recommender.unit}>"

    def _repr_html_(self) -> str:
        return of_session(self)

    @property
    def recurrent(self) -> bool:
        """Whether all events count at a constant cost; else the model computes from the latest `length`."""
        return isinstance(self.past, FoldedEvents)

    def _check_model(self) -> None:
        if self.recommender.fingerprint() != self.model:
            raise DataError("the recommender was fitted again since this session began. Start a new one.")

    def add(self, item: Any, time: Any) -> bool:
        """Take in an event, not earlier than the latest one. An unknown item is skipped with a warning.

        Parameters
        ----------
        item : raw id
            What was taken.
        time : number, str or datetime
            When; see `Recommender.instant`.

        Returns
        -------
        bool
            Whether the item is known.
        """
        if not is_one(item):
            raise DataError(f"an item is one raw id; found {item!r}.")
        code = int(self.recommender.item_ids.encode([item])[0])
        if code == 0:
            warn(f"unknown item {item!r} was skipped.")
            return False
        self.extend(np.array([code]), np.array([self.recommender.instant(time)]))
        return True

    def extend(self, codes: NDArray[Any], times: NDArray[np.int64]) -> None:
        """Take in events by the recommender's own item codes, from 1 on, in order of time: all of them or none."""
        self._check_model()
        if len(codes) == 0:
            return
        before = np.append(self.latest if self.events else times[0], times[:-1])
        if len(wrong := np.flatnonzero(times < before)):
            place, unit = wrong[0], self.recommender.unit
            raise DataError(
                f"an event at {times[place]} {unit} after one at {before[place]} {unit}: a session takes events in "
                "order of time. Start a new one from the whole history, which is put in order."
            )
        device, kept = self.past.tensors[0].device, self.past.tensors
        try:
            with torch.no_grad(), one_thread(len(codes) < SHARED_EVENTS):
                for start in range(0, len(codes), PIECE):
                    piece = slice(start, start + PIECE)
                    moments = torch.from_numpy(np.ascontiguousarray(times[piece], dtype=np.int64))
                    numbers = torch.from_numpy(np.ascontiguousarray(codes[piece], dtype=np.int64))
                    self.past.add(numbers.to(device), moments.to(device))
        except BaseException:
            self.past.tensors = kept
            raise
        np.bitwise_or.at(self.seen, codes // 8, (1 << (codes % 8)).astype(np.uint8))
        self.events += len(codes)
        self.latest = int(times[-1])

    def moment(self, at: Any = None) -> int:
        """When a request is made: at a moment, by default the end of the log or the latest event, if that is later."""
        (moment,) = self.recommender.moments(at, [self.latest])
        return moment

    def vector(self, at: Any = None) -> Tensor:
        """The user vector (d,) at a moment; see `moment`."""
        self._check_model()
        if self.events == 0:
            raise DataError("a session without events has no user vector. Add an event first.")
        return self.recommender.inference.vectors([self.past.view()], [self.moment(at)])[0]

    def seen_items(self) -> NDArray[np.int64]:
        """Codes of the items that were taken."""
        taken = np.flatnonzero(self.seen)  # a few bytes of many
        place, bit = np.nonzero(np.unpackbits(self.seen[taken, None], axis=1, bitorder="little"))
        return 8 * taken[place] + bit

    def recommend(
        self, k: int = 10, at: Any = None, *, mask_seen: bool = True, candidates: Sequence[Any] | None = None
    ) -> Any:
        """The best items now: as `Recommender.recommend`, with "history" for the user's name."""
        self._check_model()
        past = self.past.view() if self.events else None
        moment = self.moment(at) if self.events else self.recommender.log_end
        seen = self.seen_items() if mask_seen else None
        return self.recommender.answer(_NAMELESS, [past], [moment], [seen], k=k, candidates=candidates)

    # ------------------------------------------------------------------ bytes

    @property
    def nbytes(self) -> int:
        """Size of `to_bytes`, which depends on the model and the number of items but not on the events."""
        tensors = sum(tensor.numel() * tensor.element_size() for tensor in self.past.tensors)
        return HEADER.size + len(self.seen) + tensors

    def to_bytes(self) -> bytes:
        """All of the session, to be kept anywhere; `Recommender.restore` goes on with it."""
        self._check_model()
        tensors = (as_bytes(tensor) for tensor in self.past.tensors)
        body = b"".join((self.seen.tobytes(), *tensors))
        facts = self.events, self.latest
        return HEADER.pack(MAGIC, self.model, _checksum(body, *facts), *facts) + body

    @classmethod
    def from_bytes(cls, recommender: Recommender, data: bytes) -> Session:
        """Undo `to_bytes`, with the model that the session was made with."""
        session = cls(recommender)
        remedy = "Start a new one from the user's history."
        if not data.startswith(MAGIC):
            raise DataError(f"these bytes are not a session. {remedy}")
        if len(data) != session.nbytes:
            raise DataError(
                f"not a session of this model: {len(data):,} bytes where {session.nbytes:,} are due. {remedy}"
            )
        _, made_by, checksum, session.events, session.latest = HEADER.unpack_from(data)
        if made_by != session.model:
            raise DataError(f"this session belongs to another model. {remedy}")
        if checksum != _checksum(data[HEADER.size :], session.events, session.latest):
            raise DataError(f"this session is damaged. {remedy}")
        place = HEADER.size
        session.seen = np.frombuffer(data, np.uint8, len(session.seen), place).copy()
        place += len(session.seen)
        tensors = []
        for like in session.past.tensors:
            values = np.frombuffer(data, np.uint8, like.numel() * like.element_size(), place)
            place += len(values)
            tensors.append(torch.from_numpy(values.copy()).view(like.dtype).reshape(like.shape).to(like.device))
        session.past.tensors = tuple(tensors)
        return session


def _checksum(body: bytes, events: int, latest: int) -> bytes:
    return hashlib.blake2b(body, digest_size=8, salt=struct.pack("<qq", events, latest)).digest()
