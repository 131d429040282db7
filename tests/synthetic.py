"""Small logs with a known answer."""

import numpy as np
import polars as pl

from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.testing.case import cyclic_log

__all__ = ["cyclic_log", "histories_of", "interval_log", "markov_log"]


def histories_of(frame: pl.DataFrame) -> Histories:
    return Histories.from_log(Log(frame, "s"))


def markov_log(users: int = 600, events: int = 12, items: int = 60, noise: float = 0.1, seed: int = 0) -> pl.DataFrame:
    """An event is mostly followed by one of three successors of its item (60, 30 and 10 %), else by any item.

    Histories have 4 to `events` events, so that no position is met for the first time when a model is tested.
    """
    rng = np.random.default_rng(seed)
    successors = np.stack([rng.permutation(items)[:3] for _ in range(items)])
    item = np.empty((users, events), dtype=np.int64)
    item[:, 0] = rng.integers(items, size=users)
    for event in range(1, events):
        follows = successors[item[:, event - 1], rng.choice(3, size=users, p=[0.6, 0.3, 0.1])]
        item[:, event] = np.where(rng.random(users) < noise, rng.integers(items, size=users), follows)
    time = 1_600_000_000 + np.cumsum(rng.integers(1, 86_400, size=(users, events)), axis=1)
    user, event = np.nonzero(np.arange(events) < rng.integers(4, events + 1, size=(users, 1)))
    return pl.DataFrame(
        {"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item[user, event]], "time": time[user, event]}
    )


def interval_log(users: int = 500, items: int = 20, seed: int = 0) -> pl.DataFrame:
    """Events come after minutes or after days. After minutes the next item is one further, after days seven further.

    The order of the items tells how long each pause before the last event was, and not how long the last one was.
    """
    rng = np.random.default_rng(seed)
    events = 12
    pause = rng.random((users, events)) < 0.5
    gaps = np.where(pause, rng.integers(2, 6, (users, events)) * 86_400, rng.integers(2, 6, (users, events)) * 60)
    start = rng.integers(items, size=(users, 1))
    item = (start + np.cumsum(np.where(pause, 7, 1), axis=1)) % items  # the step after an event follows its own pause
    item = np.concatenate([start, item[:, :-1]], axis=1)
    time = 1_600_000_000 + np.cumsum(gaps, axis=1)
    user, event = np.nonzero(np.arange(events) < rng.integers(5, events + 1, size=(users, 1)))
    return pl.DataFrame(
        {"user": [f"u{u}" for u in user], "item": [f"i{i}" for i in item[user, event]], "time": time[user, event]}
    )
