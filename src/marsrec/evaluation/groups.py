"""Groups of targets, such as those of users with short and with long histories.

A group is a function that names the group of each target of a split::

    def weekday(split, targets): ...    # (N,) names

It returns a sequence, array or column of N names. A polars Enum puts the names in order and keeps those without
targets. One of our own is a function in this file and its line in `GROUPS`.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.splits import Split, Targets
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.by_name import Function, by_name, name_of
from marsrec.evaluation.lists import had_before
from marsrec.models import DENSE_FROM

SPARSE_BUCKETS = (1, 6, 16, 50)
"""Shortest history of each bucket for beauty, sports, games and yelp: 1-5, 6-15, 16-49, >=50."""

DENSE_BUCKETS = (1, 31, 91, 201)
"""Shortest history of each bucket for ml-1m: 1-30, 31-90, 91-200, >=201."""


def history_length(split: Split, targets: Targets) -> pl.Series:
    """The number of events before the target, in the paper's buckets for sparse or dense data."""
    lengths = targets.positions - split.histories.offsets[targets.users]
    return length_buckets(lengths, split.average_length)


def time_since(split: Split, targets: Targets) -> pl.Series:
    """Whether the target has the time of the latest event before it, or a later one.

    Of targets at the same time a model that sees the moment of the request learns nothing from it.
    """
    histories, before = split.histories, targets.positions - 1
    owners = np.repeat(np.arange(histories.n_users), histories.lengths)
    events = pl.DataFrame({"user": owners, "time": histories.times})
    latest = events.select(pl.col("time").cum_max().over("user"))["time"].to_numpy()  # `ties="recbole"` goes back
    return _named(["same time", "later"], histories.times[targets.positions] > latest[before])


def repetition(split: Split, targets: Targets) -> pl.Series:
    """Whether the user had the target's item before; `recommend` leaves such items out by default."""
    items = split.histories.items[targets.positions]
    return _named(["new item", "repeat"], had_before(split.histories, targets, items[:, None])[:, 0])


GROUPS: dict[str, Function] = {"length": history_length, "time": time_since, "repeats": repetition}
"""Our groups by name."""


def length_buckets(lengths: NDArray[np.int64], average: float = 0.0, buckets: Sequence[int] | None = None) -> pl.Series:
    """The bucket of each history by its length.

    Parameters
    ----------
    lengths : array (N,)
        Numbers of events.
    average : float
        The average length of training histories: data are sparse or dense by it.
    buckets : sequence of int, optional
        The shortest history of each bucket, ascending; the last has no upper end. By default the paper's.

    Examples
    --------
    >>> found = length_buckets(np.array([3, 80, 6]))
    >>> found.to_list(), found.dtype.categories.to_list()
    (['1-5', '>=50', '6-15'], ['1-5', '6-15', '16-49', '>=50'])
    """
    buckets = buckets or (DENSE_BUCKETS if average >= DENSE_FROM else SPARSE_BUCKETS)
    if any(low >= high for low, high in pairwise(buckets)):
        raise SettingsError(f"history lengths: buckets={tuple(buckets)}; give ascending shortest lengths")
    short = lengths < buckets[0]
    if short.any():
        row = int(short.argmax())
        raise DataError(
            f"history lengths: a history of {lengths[row]} events in row {row}, but the first bucket starts at "
            f"{buckets[0]}; start the buckets lower"
        )
    names = [f"{low}-{high - 1}" if high - 1 > low else str(low) for low, high in pairwise(buckets)]
    return _named([*names, f">={buckets[-1]}"], np.searchsorted(buckets, lengths, side="right") - 1)


def groups_of(group: str | Function, split: Split, targets: Targets) -> tuple[str, pl.Series]:
    """The name of a grouping, and the group of each target as a polars Enum.

    Parameters
    ----------
    group : str or function
        One of `GROUPS`, somebody else's as `module:function`, or the function itself.
    split, targets : Split, Targets
        What is put into groups.
    """
    if isinstance(group, str):
        name, function = by_name(group, GROUPS, "group")
    elif callable(group):
        name, function = name_of(group, GROUPS), group
    else:
        raise SettingsError(f"a group is a name such as 'length' or a function; found {group!r}.")
    found = pl.Series(name, function(split, targets))
    if len(found) != len(targets):
        raise DataError(f"group {name}: named {len(found)} of {len(targets)} targets; name the group of each.")
    if found.null_count():
        row = found.is_null().arg_true()[0]
        raise DataError(f"group {name}: no name for the target in row {row}; name the group of each.")
    if not isinstance(found.dtype, pl.Enum):
        order = found.unique().sort().cast(pl.String)
        found = found.cast(pl.String).cast(pl.Enum(order))
    return name, found


def members(groups: pl.Series) -> dict[str, NDArray[np.bool_]]:
    """(N,) which targets are in each group, by its name; groups without targets included."""
    codes = groups.to_physical().to_numpy()
    categories: Any = groups.dtype
    return {name: codes == code for code, name in enumerate(categories.categories)}


def _named(names: Sequence[str], codes: NDArray[Any]) -> pl.Series:
    """Names by number, in this order."""
    return pl.Series(np.array(names)[codes.astype(np.int64)], dtype=pl.Enum(names))
