"""Numba kernels of this package: compiled for the CPU at their first use, kept on disk, and announced."""

import time
from collections.abc import Callable
from typing import Any

from numba import njit
from numba.core import event

from marsrec import show

FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
"""What a sum may do with rounding. Not-a-number and infinity keep their meaning."""


def kernel(*, parallel: bool = True, exact: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, the way all of this package's kernels are.

    Division by zero gives infinity, as in numpy: a check for it would keep loops from being vectorised. The compiled
    code is kept beside the source, or in numba's own folder where that cannot be written; where nothing can be written
    (NUMBA_CACHE_DIR names another place) it is compiled anew in each process.

    Parameters
    ----------
    parallel : bool
        Whether `prange` spreads over threads. Such a kernel has to run inside `marsrec.threads.like_torch`.
    exact : bool
        Whether every operation rounds as it is written, for what has to come out alike on all machines.
    """
    options: dict[str, Any] = {
        "parallel": parallel,
        "fastmath": False if exact else FASTMATH,
        "error_model": "numpy",
    }

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # no place to keep it
            return njit(**options)(function)

    return compiled


class _Announcer(event.Listener):
    """Says that a kernel of this package is being compiled, and how long it took."""

    def __init__(self) -> None:
        self.began: list[tuple[str, float]] = []

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        own = function.__module__.startswith("marsrec.")
        if own and not self.began:
            show.note(f"Compiling {function.__module__}.{function.__name__} for this CPU, once ...")
        self.began.append((function.__module__, time.monotonic()))

    def on_end(self, event: Any) -> None:
        module, began = self.began.pop()
        if module.startswith("marsrec.") and not self.began:
            show.note(f"... compiled in {time.monotonic() - began:.1f} s; it is kept on disk for the next time.")


event.register("numba:compile", _Announcer())  # type: ignore[no-untyped-call]
