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


def histories_of(frame: pl.DataFrame) -> Histories:
    return Histories.from_log(Log(frame, "s"))
