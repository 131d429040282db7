"""How things are measured: side by side in one run, so that a busy machine is busy for all contestants."""

import os
import time
from collections.abc import Callable
from statistics import median

import numpy as np
import polars as pl
from rich.console import Console
from rich.table import Table

from marsrec.data.catalog import CATALOG, load, locate
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import Split, leave_one_out

REPETITIONS = 15


def medians(contestants: dict[str, Callable[[], object]], repetitions: int = REPETITIONS) -> dict[str, float]:
    """Median seconds of each; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for repetition in range(repetitions + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if repetition:  # the first is the warm-up
                seconds[name].append(time.perf_counter() - start)
    return {name: median(times) for name, times in seconds.items()}


def split_like(name: str) -> tuple[Split, str]:
    """A public data set where it is present, else random histories of its size and a similar spread of lengths."""
    if locate(name) is not None:
        return leave_one_out(Histories.from_log(load(name))), name
    size = CATALOG[name].expected
    rng = np.random.default_rng(0)
    spread = rng.lognormal(sigma=0.9, size=size.users)
    lengths = 5 + ((size.interactions - 5 * size.users) * spread / spread.sum()).astype(int)
    user = np.repeat(np.arange(size.users), lengths)
    item = rng.integers(size.items, size=len(user))
    frame = pl.DataFrame({"user": user, "item": item, "time": rng.integers(10**9, size=len(user))})
    return leave_one_out(Histories.from_log(Log(frame, "s"))), f"random data of the size of {name}"


def show(title: str, columns: list[str], rows: list[list[str]], caption: str = "") -> None:
    """Print a table; where there is no terminal, wide enough for all of it."""
    table = Table(title=title, caption=caption, title_justify="left", caption_justify="left")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    for row in rows:
        table.add_row(*row)
    console = Console()
    (console if console.is_terminal else Console(width=int(os.environ.get("COLUMNS", 140)))).print(table)
