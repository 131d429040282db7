"""Keeping the users and items whose interaction counts lie within bounds."""

from dataclasses import replace

import polars as pl

from marsrec.data.checks import counted
from marsrec.data.log import Log
from marsrec.errors import DataError, SettingsError
from marsrec.settings import Settings

Bounds = tuple[int, int | None]


class FilterSettings(Settings):
    """Which users and items stay, by their number of events: [low, high), repeated until nothing changes."""

    min_user_events: int = 1
    """Drop users with fewer events. Users and items are counted again until all have enough."""
    max_user_events: int | None = None
    """Drop users with this many events or more: with 200, users with 199 stay."""
    min_item_events: int = 1
    """Drop items with fewer events."""
    max_item_events: int | None = None
    """Drop items with this many events or more: with 200, items with 199 stay."""

    def apply(self, log: Log) -> Log:
        """Filter a log; without bounds it stays as it is."""
        if self == FilterSettings():
            return log
        users, items = (self.min_user_events, self.max_user_events), (self.min_item_events, self.max_item_events)
        return filter_counts(log, users, items)


def filter_counts(log: Log, users: Bounds = (1, None), items: Bounds = (1, None)) -> Log:
    """Remove users and items whose counts lie outside [low, high), again and again until nothing changes.

    Each round counts once and removes users and items at the same time, as RecBole does. With an upper bound the order
    of removal decides what is left, so this order is part of the definition.

    Parameters
    ----------
    log : Log
    users, items : tuple of int and (int or None), default (1, None)
        Low and high; low is allowed, high is not, None = no upper bound.

    Returns
    -------
    Log
        In file order, with a note of what was removed.

    Examples
    --------
    >>> frame = pl.DataFrame({"user": ["a", "a", "b"], "item": [1, 2, 1], "time": [0, 1, 2]})
    >>> log = filter_counts(Log(frame, unit="s"), users=(2, None))
    >>> log.frame.rows()
    [('a', 1, 0), ('a', 2, 1)]
    >>> log.notes[-1]
    'counts in [2, inf) per user and [1, inf) per item: removed 1 user, 0 items and 1 row in 1 round'
    """
    wanted = f"counts in {_interval(users, 'users')} per user and {_interval(items, 'items')} per item"
    frame, before, rounds = log.frame, -1, -1
    while frame.height != before:
        before, rounds = frame.height, rounds + 1
        frame = frame.filter(_within("user", users), _within("item", items))
    if frame.is_empty():
        raise DataError(
            f"{log.source or 'log'}: nothing is left with {wanted} ({counted(len(log), 'row')} before, "
            f"{counted(rounds, 'round')}). Widen the bounds."
        )
    kept = replace(log, frame=frame)
    removed = (
        f"removed {counted(log.n_users - kept.n_users, 'user')}, {counted(log.n_items - kept.n_items, 'item')} "
        f"and {counted(len(log) - len(kept), 'row')} in {counted(rounds, 'round')}"
    )
    return replace(kept, notes=(*log.notes, f"{wanted}: {removed}"))


def _within(column: str, bounds: Bounds) -> pl.Expr:
    low, high = bounds
    count = pl.len().over(column)
    return count >= low if high is None else (count >= low) & (count < high)


def _interval(bounds: Bounds, setting: str) -> str:
    low, high = bounds
    if low < 0 or (high is not None and high <= max(low, 1)):
        raise SettingsError(
            f"{setting}: no count lies in [{low}, {high}). Give 0 <= low < high, or None for no upper bound."
        )
    return f"[{low}, {'inf' if high is None else high})"
