"""How things are measured: side by side in one run, so that a busy machine is busy for all contestants."""

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

import numpy as np
import polars as pl
import torch
from rich.console import Console
from rich.table import Table
from torch._C._profiler import _ExtraFields_Allocation, _ProfilerEvent
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import ProfilerActivity
from torch.utils.flop_counter import FlopCounterMode

from marsrec.data.catalog import CATALOG
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.public import load, locate
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


def multiply_accumulates(call: Callable[[], object]) -> float:
    """Multiply-accumulates of the matrix products of a call, with attention's; those of numba's kernels are not seen.

    Examples
    --------
    >>> left, right = torch.ones(2, 3), torch.ones(3, 4)
    >>> multiply_accumulates(lambda: torch.zeros(2, 4).addmm_(left, right))
    24.0
    """

    def in_place(total: Any, left: Any, right: Any, **_: Any) -> int:
        return int(2 * left[0] * left[1] * right[1])  # shapes; torch by itself counts nothing there

    # Attention is counted only where it is made of plain products.
    counter = FlopCounterMode(display=False, custom_mapping={torch.ops.aten.addmm_: in_place})
    with sdpa_kernel(SDPBackend.MATH), counter:
        call()
    return float(counter.get_total_flops() / 2)


def peak_bytes(run: Callable[[], object]) -> int:
    """The most that torch's allocator held at once for `run`, beyond what was there before."""
    with _quiet(), torch.profiler.profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profile:
        run()
    allocations: list[tuple[int, int]] = []

    def visit(event: _ProfilerEvent) -> None:
        if isinstance(event.extra_fields, _ExtraFields_Allocation):
            allocations.append((event.start_time_ns, event.extra_fields.alloc_size))
        for child in event.children:
            visit(child)

    for event in profile.profiler.kineto_results.experimental_event_tree():
        visit(event)
    held = torch.tensor([size for _, size in sorted(allocations)]).cumsum(0)
    return int(held.max())


@contextmanager
def _quiet() -> Iterator[None]:
    """The profiler writes lines of its own to the terminal, past Python."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


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
