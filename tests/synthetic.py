"""Small logs with a known answer."""

import numpy as np
import polars as pl

from marsrec.data.histories import Histories
from marsrec.data.log import Log


def cyclic_log(users: int = 60, events: int = 12, items: int = 20, seed: int = 0) -> pl.DataFrame:
    """Each user walks through the items in order from a random start: the next item follows from the last one."""
    rng = np.random.default_rng(seed)
    start = rng.integers(items, size=(users, 1))
    item = (start + np.arange(events)) % items
    time = 1_600_000_000 + np.cumsum(rng.integers(1, 86_400, size=(users, events)), axis=1)
    return pl.DataFrame(
        {
            "user": [f"u{u}" for u in range(users) for _ in range(events)],
            "item": [f"i{i}" for i in item.flatten()],
            "time": time.flatten(),
        }
    )


def recency_log(users: int = 400, events: int = 8, items: int = 12, seed: int = 0) -> pl.DataFrame:
    """Time decides: the next item repeats the first item of the latest burst, however many events the burst has.

    A history is bursts of one to five events, seconds apart within and days apart between bursts. The last event
    repeats the item that its burst began with, and items are otherwise random, so that the order alone cannot tell
    which of the latest events began the burst.
    """
    rng = np.random.default_rng(seed)
    rows = []
    for user in range(users):
        time = 1_600_000_000
        for _ in range(events):
            time += int(rng.integers(5, 30)) * 86_400
            first = int(rng.integers(items))
            burst = [first, *rng.integers(items, size=rng.integers(0, 4)).tolist(), first]
            for item in burst:
                time += int(rng.integers(1, 60))
                rows.append((f"u{user}", f"i{item}", time))
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


def histories_of(frame: pl.DataFrame) -> Histories:
    return Histories.from_log(Log(frame, "s"))
