"""Numba kernels of this package: compiled for the CPU at their first use, kept on disk, and announced."""

import hashlib
import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from numba import config, njit
from numba.core import event
from numba.core.codegen import get_host_cpu_features
from numba.core.compiler_lock import global_compiler_lock

if sys.platform != "win32":
    import fcntl

log = logging.getLogger(__name__)

FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
"""What a sum may do with rounding. Not-a-number and infinity keep their meaning."""

SHARED = ("compute/compiled.py", "nn/kernels/numeric.py", "nn/kernels/dropout.py")
"""Files whose code goes into kernels of other files. A change in one of them has all kernels compiled anew; numba by
itself looks at a kernel's own file only."""


def _take_whole_registers() -> None:
    """Let LLVM use registers of 512 bits where there are any.

    By itself it takes half of them, since a CPU may clock lower for the sake of a few wide instructions. These loops
    consist of them, and so do the matrix products between the loops. This holds for the whole process, unless
    something was compiled in it before. Whoever sets NUMBA_CPU_FEATURES decides otherwise.
    """
    features = get_host_cpu_features()  # type: ignore[no-untyped-call]
    if config.CPU_FEATURES is None and "+avx512f" in features.split(","):  # type: ignore[attr-defined]
        config.CPU_FEATURES = f"{features},-prefer-256-bit"  # type: ignore[attr-defined]


_take_whole_registers()


def kernel(*, parallel: bool = True, exact: bool = False) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function with numba, the way all of this package's kernels are.

    Division by zero gives infinity, as in numpy: a check for it would keep loops from being vectorised. The compiled
    code is kept beside the source, or in numba's own folder where that cannot be written; where nothing can be written
    (NUMBA_CACHE_DIR names another place) it is compiled anew in each process.

    Parameters
    ----------
    parallel : bool
        Whether `prange` spreads over threads. Such a kernel has to run inside `marsrec.compute.threads.like_torch`.
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
            made = njit(cache=True, **options)(function)
            index: Any = getattr(getattr(made, "_cache", None), "_cache_file", None)
            if hasattr(index, "_source_stamp"):  # numba has no front door to it; with NUMBA_DISABLE_JIT there is none
                index._source_stamp = index._source_stamp, _shared_code()
                made.compile = _one_process_at_a_time(made.compile, inspect.getfile(function))
            return made
        except (RuntimeError, OSError):  # no place to keep it, or no sources to compare it with
            return njit(**options)(function)

    return compiled


def _one_process_at_a_time(compile: Callable[[Any], Any], file: str) -> Callable[[Any], Any]:
    """Let processes that want the same kernel wait for the first of them, and load what it has put on disk."""

    def alone(signature: Any) -> Any:
        with global_compiler_lock, _locked(file):
            return compile(signature)

    return alone


_LOCKED: set[str] = set()


@contextmanager
def _locked(file: str) -> Iterator[None]:
    """Hold a source file, unless this process does already: a kernel may call others of the same file."""
    if file in _LOCKED:
        yield
        return
    with Path(file).open("rb") as source:
        if sys.platform != "win32":
            with suppress(OSError):  # not all file systems know locks
                fcntl.flock(source, fcntl.LOCK_EX)
        _LOCKED.add(file)
        try:
            yield
        finally:
            _LOCKED.remove(file)


@cache
def _shared_code() -> bytes:
    """A digest of the files that kernels share."""
    package = resources.files("marsrec")
    return hashlib.sha256(b"".join(package.joinpath(name).read_bytes() for name in SHARED)).digest()


class _Announcer(event.Listener):
    """Says that kernels of this package are being compiled and, to those who debug, how long each took."""

    def __init__(self) -> None:
        self.began: list[float] = []
        self.heading = ""

    def on_start(self, event: Any) -> None:
        dispatcher = event.data["dispatcher"]
        if _is_own(dispatcher.py_func) and not self.began:
            kept = "they are kept on disk for the next time"
            if dispatcher.stats.cache_path is None:
                kept = "there is no place to keep them for the next time (NUMBA_CACHE_DIR names one)"
            if kept != self.heading:
                log.info(f"Compiling kernels for this CPU; {kept}.")
                self.heading = kept
        self.began.append(time.monotonic())

    def on_end(self, event: Any) -> None:
        began, function = self.began.pop(), event.data["dispatcher"].py_func
        if _is_own(function) and not self.began:
            name = f"{function.__module__.removeprefix('marsrec.')}.{function.__name__}"
            log.debug(f"  compiled {name} in {time.monotonic() - began:.1f} s")


def _is_own(function: Callable[..., Any]) -> bool:
    """Whether a function is of this package; one that was made by exec has no module."""
    return (function.__module__ or "").startswith("marsrec.")


_ANNOUNCER = _Announcer()
event.register("numba:compile", _ANNOUNCER)  # type: ignore[no-untyped-call]
