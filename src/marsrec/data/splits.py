"""Splits: which events are trained on, and which are predicted from what came before them."""

import math
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import field_validator

from marsrec.data.histories import Histories
from marsrec.data.moments import Moment, instant
from marsrec.errors import DataError, SettingsError
from marsrec.settings import Settings

Part = Literal["valid", "test"]
"""The targets that decide when to stop training, or those that nothing was chosen on."""


class SplitSettings(Settings):
    """How histories are divided into training events and targets."""

    name: Literal["leave-one-out", "global-time"] = "leave-one-out"
    """What is held out: each user's last two events, or all events from two moments on."""
    valid_from: float | datetime | date | str = 0.8
    """global-time: where validation begins, as a fraction of all events in time order or a moment, such as a date."""
    test_from: float | datetime | date | str = 0.9
    """global-time: where test begins."""

    @field_validator("valid_from", "test_from", mode="before")
    @classmethod
    def _read_number(cls, moment: Any) -> Any:
        """Text that spells a number is one: the same split has the same name wherever it comes from."""
        try:
            return float(moment) if isinstance(moment, str) else moment
        except ValueError:
            return moment

    def apply(self, histories: Histories) -> "Split":
        """Split histories."""
        if self.name == "leave-one-out":
            return leave_one_out(histories)
        if histories.ties == "recbole":
            raise SettingsError("RecBole's rounded times do not go with a split at exact moments. Use ties='file'.")
        return global_time(histories, self.valid_from, self.test_from)


@dataclass(frozen=True)
class Targets:
    """Events to predict. Each is predicted from all of its user's events before it, whichever part they belong to."""

    users: NDArray[np.int64]
    """The user (counted from 0) of each target."""
    positions: NDArray[np.int64]
    """Where the target stands among all events of the histories."""

    def __len__(self) -> int:
        return len(self.users)


@dataclass(frozen=True)
class Split:
    """A division of histories into training events and targets for validation and test."""

    histories: Histories
    train_ends: NDArray[np.int64]
    """User u is trained on the events `offsets[u]:train_ends[u]`."""
    valid: Targets
    test: Targets
    name: str

    def targets(self, part: Part) -> Targets:
        """The targets of a part."""
        if part not in ("valid", "test"):
            raise SettingsError(f"part={part!r}: the parts with targets are 'valid' and 'test'.")
        return self.valid if part == "valid" else self.test

    @property
    def train_lengths(self) -> NDArray[np.int64]:
        """Number of training events of each user."""
        return self.train_ends - self.histories.offsets[:-1]

    @property
    def average_length(self) -> float:
        """Average number of training events of the users who have any: the statistic of the backbone rule."""
        lengths = self.train_lengths
        return float(lengths[lengths > 0].mean()) if (lengths > 0).any() else 0.0

    @property
    def item_counts(self) -> NDArray[np.int64]:
        """How often each item (by code; entry 0 is padding) occurs in training."""
        inside = np.arange(len(self.histories)) < np.repeat(self.train_ends, self.histories.lengths)
        return np.bincount(self.histories.items[inside], minlength=self.histories.n_items + 1)


def leave_one_out(histories: Histories) -> Split:
    """Split off each user's last event for test and the second last for validation.

    A user with fewer than three events only trains.

    Examples
    --------
    >>> import polars as pl
    >>> from marsrec.data.log import read_log
    >>> log = read_log(pl.DataFrame({"user": [1] * 4 + [2], "item": [5, 6, 7, 8, 5], "time": range(5)}))
    >>> split = leave_one_out(Histories.from_log(log))
    >>> split.train_ends.tolist(), split.valid.positions.tolist(), split.test.positions.tolist()
    ([2, 5], [2], [3])
    """
    ends = histories.offsets[1:]
    tested = np.flatnonzero(histories.lengths >= 3)
    if len(tested) == 0:
        raise DataError("leave-one-out needs a user with at least three events, and there is none. Give a longer log.")
    train_ends = ends.copy()
    train_ends[tested] -= 2
    return Split(
        histories,
        train_ends,
        valid=Targets(tested, ends[tested] - 2),
        test=Targets(tested, ends[tested] - 1),
        name="leave-one-out",
    )


def global_time(histories: Histories, valid_from: float | Moment = 0.8, test_from: float | Moment = 0.9) -> Split:
    """Split at two moments that are the same for everybody: nothing is trained on that happened later than a target.

    Every event from `valid_from` (until `test_from`) is a validation target and every event from `test_from` on is a
    test target, if its user has an event before it.

    Parameters
    ----------
    histories : Histories
        What to split.
    valid_from, test_from : float, str, date or datetime
        A number between 0 and 1 is a fraction of all events in time order; else a moment, such as a date.

    Examples
    --------
    >>> import polars as pl
    >>> from marsrec.data.log import read_log
    >>> log = read_log(pl.DataFrame({"user": [1] * 6, "item": range(6), "time": range(0, 60, 10)}))
    >>> split = global_time(Histories.from_log(log), 0.5, "1970-01-01T00:00:50")
    >>> split.train_ends.tolist(), split.valid.positions.tolist(), split.test.positions.tolist()
    ([3], [3, 4], [5])
    """
    first, second = _instant(histories, valid_from, "valid_from"), _instant(histories, test_from, "test_from")
    if first >= second:
        raise SettingsError(
            f"valid_from ({valid_from}, at {first} {histories.unit}) must come before test_from ({test_from}, at "
            f"{second}). Choose moments further apart."
        )
    times = histories.times
    owners = np.repeat(np.arange(histories.n_users), histories.lengths)
    train_ends = histories.offsets[:-1] + np.bincount(owners[times < first], minlength=histories.n_users)
    has_past = np.ones(len(histories), dtype=bool)
    has_past[histories.offsets[:-1]] = False
    parts = {
        "training": times < first,
        "validation": (times >= first) & (times < second) & has_past,
        "test": (times >= second) & has_past,
    }
    for part, chosen in parts.items():
        if not chosen.any():
            raise DataError(f"a split at {valid_from} and {test_from} leaves no {part} events. Choose other moments.")
    valid, test = (np.flatnonzero(parts[part]) for part in ("validation", "test"))
    return Split(histories, train_ends, Targets(owners[valid], valid), Targets(owners[test], test), name="global-time")


def _instant(histories: Histories, moment: float | Moment, name: str) -> int:
    """The moment as a time in the histories' unit."""
    ordered = np.sort(histories.times)
    try:
        share = float(moment)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        share = math.inf
    if share > 1:
        return instant(moment, histories.unit, int(ordered[-1]))
    if not 0 < share < 1:
        raise SettingsError(f"{name} must be a fraction between 0 and 1 or a date; found {moment}.")
    return int(ordered[int(len(ordered) * share)])
