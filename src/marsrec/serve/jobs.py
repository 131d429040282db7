"""What is asked of a model, and what it answers."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.errors import DataError
from marsrec.nn.model import SequenceModel
from marsrec.recommender import Recommender
from marsrec.serve.live import History, Sessions
from marsrec.serve.reading import Reading, Split
from marsrec.serve.search import Index
from marsrec.serve.shortlist import Shortlist


class UnknownUserError(DataError):
    """Nothing is known of a user."""

    def __init__(self, user: str) -> None:
        super().__init__(f"user {user!r} has no events, neither saved with the model nor in the store.")


class EarlyError(DataError):
    """A request is made at a moment before the latest event."""


@dataclass(frozen=True)
class Model:
    """A loaded model with the live sessions of its users."""

    name: str
    folder: Path
    recommender: Recommender
    sessions: Sessions
    loaded: float
    """When, in seconds since 1970."""
    shortlist: Shortlist | None = None
    """What names the items that are ranked, where not all are."""

    @property
    def network(self) -> SequenceModel:
        """The trained network."""
        return self.recommender.network

    @cached_property
    def directions(self) -> Tensor:
        """Item vectors of length 1, for similarities."""
        return torch.nn.functional.normalize(self.network.items.weight.detach(), dim=1)

    @cached_property
    def items(self) -> Index:
        """Items to search in, the frequent ones first."""
        return Index(self.recommender.item_ids, self.recommender.item_counts[1:])

    @cached_property
    def users(self) -> Index:
        """Users that were saved with the model, to search in."""
        return Index(self.sessions.user_ids)


@dataclass(frozen=True)
class Asked:
    """A request: for a user, or for a history."""

    model: Model
    user: str | None = None
    codes: NDArray[np.int64] | None = None
    """Known items of a history in order of time."""
    times: NDArray[np.int64] | None = None
    k: int = 10
    """How many items; 0 only reads the history."""
    at: int | None = None
    """The moment of the request; None is `since`, or the latest event if that is later."""
    since: int = 0
    mask_seen: bool = True
    candidates: Tensor | None = None
    explain: bool = False


@dataclass(frozen=True)
class Answer:
    """The best items, best first."""

    at: int
    source: str
    codes: list[int]
    scores: list[float]
    reading: Reading | None = None
    """What the model saw, where that was asked for."""
    split: Split | None = None
    """The scores in parts, where that was asked for and they split."""
    history: History | None = None
    """All events of a user, where that was asked for."""


@dataclass(frozen=True)
class Similar:
    """A request for the items most similar to one."""

    model: Model
    code: int
    k: int
