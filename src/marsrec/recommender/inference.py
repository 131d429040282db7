"""THE way from events and a moment to user vectors, and from these to the best items.

`Recommender`, `Session`, the server and the command line all come through here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from marsrec.compute.threads import one_thread
from marsrec.data.batches import Batch
from marsrec.data.times import TimeUnit, utc_date
from marsrec.errors import DataError
from marsrec.evaluation.ranking import Score, Seen, products, top_k
from marsrec.nn.arrays.base import FastRecall, FastTakeIn, FastUser
from marsrec.nn.arrays.numpy_arrays import NumpyArrays
from marsrec.nn.encoders.base import Memory
from marsrec.nn.model import ModelMemory, SequenceModel
from marsrec.nn.repeats import Added

ROWS = 512
"""Histories that are encoded at a time."""
FEW = 16
"""Up to so many histories are computed one by one in the model's fast form; more share the work of a batch."""
SHARED_EVENTS = 256
"""From so many events at a time on threads share the work; below they would wait for each other."""
SHARED_SCORES = 1 << 18
"""From so many scores on threads share the ranking."""

Codes = NDArray[np.int64]
_NONE: Codes = np.zeros(0, dtype=np.int64)


class EarlyError(DataError):
    """A request is made at a moment before the latest event."""


@dataclass(frozen=True, slots=True)
class Window:
    """The latest events of a history, at least one: codes of known items, and times."""

    codes: Codes
    times: NDArray[np.int64]

    @property
    def latest(self) -> int:
        """Time of the latest event. It need not be the last: `ties="recbole"` orders by rounded times."""
        return int(self.times.max())


@dataclass(frozen=True)
class Folded:
    """All events of a history, as a recurrent model remembers them."""

    memory: ModelMemory


@dataclass(frozen=True)
class Vector:
    """A history whose user vector is known already."""

    user: Tensor
    """(d,)."""
    window: Window | None = None
    """The events; a model that scores own items wants them."""


Past = Window | Folded | Vector
AnswerSource = Literal["model", "popularity", "similarity"]


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody who is to be recommended something."""

    past: Past | None
    """None where no event is known."""
    at: int
    """The moment of the request."""
    k: int
    """How many items; fewer where there are not as many."""
    seen: NDArray[np.integer[Any]] | None = None
    """Codes of items that are left out."""
    candidates: Tensor | None = None
    """Codes of the only items to recommend."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The best items for a request, the best first."""

    codes: Codes
    scores: NDArray[np.float32]
    source: AnswerSource
    """How they were found."""


class Ranker(Protocol):
    """Something that finds the best items for user vectors, such as an approximate index."""

    @property
    def most(self) -> int:
        """How many items it finds for each."""

    def top_k(self, users: Tensor, k: int, seen: Seen) -> tuple[Tensor, Tensor]:
        """Scores and codes (N, k) of the best items."""


@dataclass(frozen=True)
class Inference:
    """A trained model, and what an answer needs to know beside it."""

    network: SequenceModel
    length: int
    """Number of latest events that are looked at."""
    item_counts: NDArray[np.int64]
    """(V + 1,) how often each item was trained on, which is what cold users get."""
    unit: TimeUnit
    log_end: int
    """Time of the latest event of the log."""

    @property
    def device(self) -> torch.device:
        """Where the model computes."""
        return self.network.items.weight.device

    def moment(self, at: int | None, latest: int, since: int | None = None, *, spelled: Any = None) -> int:
        """The moment of a request by somebody whose latest event was at `latest`.

        Parameters
        ----------
        at : int, optional
            The moment that the request names.
        latest : int
            Time of the latest event.
        since : int, optional
            The moment of requests that name none, unless the latest event is later; by default the end of the log.
        spelled : optional
            `at` as the caller wrote it, for the message of an error.
        """
        if at is None:
            return max(self.log_end if since is None else since, latest)
        if at < latest:
            given = at if spelled is None else spelled
            raise EarlyError(
                f"at={given} is earlier than an event of the history ({latest} {self.unit}, "
                f"{utc_date(latest, self.unit)}). Give a later moment."
            )
        return at

    def window(self, codes: NDArray[np.integer], times: NDArray[np.int64]) -> Window:
        """The events of a history that the model looks at."""
        return Window(np.asarray(codes[-self.length :], dtype=np.int64), np.asarray(times[-self.length :]))

    def batch(self, windows: Sequence[Window], moments: Sequence[int]) -> Batch:
        """Requests as rows, padded on the right."""
        lengths = np.array([len(window.codes) for window in windows])
        ends = np.cumsum(lengths)
        place = np.arange(lengths.max())
        index = np.minimum((ends - lengths)[:, None] + place, ends[:, None] - 1)  # padding repeats the latest event
        codes = np.where(place < lengths[:, None], np.concatenate([window.codes for window in windows])[index], 0)
        items = torch.from_numpy(codes)
        times = torch.from_numpy(np.concatenate([window.times for window in windows])[index])
        now = torch.tensor(moments, dtype=torch.int64)[:, None].expand_as(times)
        return Batch(items, times, torch.from_numpy(lengths), torch.zeros_like(items), now).to(self.device)

    @cached_property
    def one_window(self) -> FastUser | None:
        """The model for one history without torch; None if it has no such form, and on a GPU."""
        return self.network.fast(NumpyArrays()) if self._fits_kernels else None

    @cached_property
    def live(self) -> tuple[FastTakeIn, FastRecall] | None:
        """How a session takes in events and recalls a user vector without torch; None if the model has no such form."""
        return self.network.fast_live(NumpyArrays()) if self._fits_kernels else None

    @cached_property
    def _fits_kernels(self) -> bool:
        kinds = {(part.device.type, part.dtype) for part in self.network.parameters()}
        return kinds == {("cpu", torch.float32)}

    @torch.no_grad()
    def vectors(self, pasts: Sequence[Past], moments: Sequence[int]) -> Tensor:
        """User vectors (N, d) at the moments of the requests.

        A few are computed one by one in the model's fast form, if it has one. Of many, windows of similar length go
        through the network in padded batches, and memories all at once.
        """
        table = self.network.items.weight
        vectors = torch.empty(len(pasts), table.shape[1], dtype=table.dtype, device=table.device)
        for place, past in enumerate(pasts):
            if isinstance(past, Vector):
                vectors[place] = past.user
        windows = {place: past for place, past in enumerate(pasts) if isinstance(past, Window)}
        folded = {place: past for place, past in enumerate(pasts) if isinstance(past, Folded)}
        if len(windows) <= FEW and (one := self.one_window) is not None:
            for place, window in windows.items():
                vectors.numpy()[place] = one(window.codes, window.times, moments[place])
            windows = {}
        if len(folded) <= FEW and (live := self.live) is not None:
            for place, memory in folded.items():
                vectors.numpy()[place] = live[1](bare(memory.memory[1]), moments[place])
            folded = {}
        if folded:
            together = tuple(
                torch.cat(parts) for parts in zip(*(past.memory[1] for past in folded.values()), strict=True)
            )
            now = torch.tensor([moments[place] for place in folded], dtype=torch.int64, device=self.device)
            with one_thread(len(folded) < SHARED_EVENTS):
                vectors[list(folded)] = self.network.recall(((), together), now)
        order = sorted(
            windows, key=lambda place: len(windows[place].codes), reverse=True
        )  # little of a batch is padding
        for start in range(0, len(order), ROWS):
            rows = order[start : start + ROWS]
            batch = self.batch([windows[place] for place in rows], [moments[place] for place in rows])
            with one_thread(batch.items.numel() < SHARED_EVENTS):
                vectors[rows] = self.network(batch).users
        return vectors

    def answer(self, requests: Sequence[Request], *, ranker: Ranker | None = None) -> list[Answer]:
        """The best items for each request; for those of whom nothing is known, the items trained on most often.

        Parameters
        ----------
        requests : sequence of Request
            Those that share their candidates are ranked together.
        ranker : Ranker, optional
            What ranks instead of a full ranking, where any item may come.
        """
        answers: dict[int, Answer] = {}
        warm = [place for place, request in enumerate(requests) if request.past is not None]
        pasts = [past for request in requests if (past := request.past) is not None]
        vectors = self.vectors(pasts, [requests[place].at for place in warm])
        row = {place: index for index, place in enumerate(warm)}
        groups: dict[tuple[bool, int], list[int]] = {}
        for place, request in enumerate(requests):
            groups.setdefault((request.past is None, id(request.candidates)), []).append(place)
        for (cold, _), places in groups.items():
            group = [requests[place] for place in places]
            k = max(request.k for request in group)
            seen = in_rows([_NONE if request.seen is None else request.seen for request in group])
            candidates = group[0].candidates
            added = None if cold else self._own_scores(group)
            with one_thread(len(group) * len(self.item_counts) < SHARED_SCORES):
                if k == 0:
                    best = torch.zeros(len(group), 0), torch.zeros(len(group), 0, dtype=torch.long)
                elif cold:
                    best = top_k(lambda counts: counts, self._counts(len(group)), k, seen=seen, candidates=candidates)
                else:
                    users = vectors if len(group) == len(vectors) else vectors[[row[place] for place in places]]
                    if ranker is not None and candidates is None and added is None and k <= ranker.most:
                        best = ranker.top_k(users, k, seen)
                    else:
                        best = top_k(self.scores(), users, k, seen=seen, added=added, candidates=candidates)
            scores, codes = (part.cpu().numpy() for part in best)
            source: AnswerSource = "popularity" if cold else "model"
            found = (codes > 0).sum(axis=1).tolist()  # what is missing stands at the end
            for at, (request, place) in enumerate(zip(group, places, strict=True)):
                kept = min(request.k, found[at])
                answers[place] = Answer(codes[at, :kept], scores[at, :kept], source)
        return [answers[place] for place in range(len(requests))]

    @cached_property
    def scored(self) -> tuple[Tensor, Tensor | None]:
        """Vectors (V + 1, d) and biases (V + 1,) of the items, as the scorer makes them."""
        with torch.no_grad():
            table = self.network.items.weight
            _, items, bias = self.network.scorer(table[:1], table)
        return items, bias

    def scores(self) -> Score:
        """What `SequenceModel.score` does, with the items' side made once.

        Scores of many users share their memory: those of a call are gone with the next one.
        """
        (items, bias), room = self.scored, np.empty((0, 0), dtype=np.float32)

        @torch.no_grad()
        def score(users: Tensor) -> Tensor:
            nonlocal room
            turned, _, _ = self.network.scorer(users, self.network.items.weight[:1])
            if len(users) == 1 and self._fits_kernels:
                scores = products(items, turned[0])[None]
            elif len(users) * len(items) >= SHARED_SCORES and self._fits_kernels:
                # Numpy's product is half as fast again as torch's, and fresh memory would cost as much as the product.
                if len(room) < len(users):
                    room = np.empty((len(users), len(items)), dtype=np.float32)
                scores = torch.from_numpy(np.matmul(turned.numpy(), items.numpy().T, out=room[: len(users)]))
            else:
                scores = turned @ items.T
            return scores if bias is None else scores.add_(bias)

        return score

    def _own_scores(self, requests: Sequence[Request]) -> Added | None:
        """What comes on top of the scores of items that users had; None where no such item may be recommended."""
        if self.network.repeats is None:
            return None
        windows = [past.window if isinstance(past, Vector) else past for past in (request.past for request in requests)]
        known = [window for window in windows if isinstance(window, Window)]
        assert len(known) == len(requests)  # with repeats no model is recurrent, and none folds events
        hidden = (_NONE if request.seen is None else request.seen for request in requests)
        if all(np.isin(window.codes, codes).all() for window, codes in zip(known, hidden, strict=True)):
            return None
        return self.network.own_scores(self.batch(known, [request.at for request in requests]))

    def _counts(self, rows: int) -> Tensor:
        return torch.from_numpy(self.item_counts.astype(np.float32)).expand(rows, -1)

    def similar(self, code: int, k: int) -> Answer:
        """The items whose vectors point in the most similar direction, by cosine."""
        table = self.directions
        own = torch.tensor([0, 1]), torch.tensor([code])
        with one_thread(len(table) < SHARED_SCORES):
            scores, codes = top_k(lambda rows: rows @ table.T, table[code : code + 1], k, seen=own)
        kept = (codes[0] > 0).cpu().numpy()
        return Answer(codes[0].cpu().numpy()[kept], scores[0].cpu().numpy()[kept], "similarity")

    @cached_property
    def directions(self) -> Tensor:
        """Item vectors (V + 1, d) of length 1."""
        return F.normalize(self.network.items.weight.detach(), dim=1)


def bare(memory: Memory) -> tuple[NDArray[Any], ...]:
    """What is remembered of one history, as the fast form takes it: without the axis of rows."""
    return tuple(part[0].numpy() for part in memory)


def in_rows(each: Sequence[NDArray[np.integer[Any]]]) -> Seen:
    """Item codes of several users in compressed rows."""
    offsets = np.concatenate([[0], np.cumsum([len(codes) for codes in each])])
    flat = np.concatenate(each) if len(each) else np.zeros(0, dtype=np.int64)
    return torch.from_numpy(offsets), torch.from_numpy(flat.astype(np.int64))
