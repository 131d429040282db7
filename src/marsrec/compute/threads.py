"""One number of threads for torch and numba, which share an OpenMP runtime and would otherwise set each other's."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch
from numba import config

_ONE_AT_A_TIME = threading.RLock()  # a kernel takes all threads; numba's workqueue does not stand two at once


@contextmanager
def like_torch() -> Iterator[None]:
    """Run numba kernels with as many threads as torch has, and leave the numbers of both as they were.

    A parallel numba kernel sets the number of OpenMP threads for the whole process, torch included.
    """
    with _ONE_AT_A_TIME:
        threads, own = torch.get_num_threads(), numba.get_num_threads()
        numba.set_num_threads(min(threads, config.NUMBA_NUM_THREADS))  # type: ignore[attr-defined]
        try:
            yield
        finally:
            torch.set_num_threads(threads)
            numba.set_num_threads(own)


@contextmanager
def one_thread(small: bool = True) -> Iterator[None]:
    """Compute in this thread alone what is too small to be shared.

    Threads wait for each other after each operation. Where something else keeps the cores busy, waiting takes many
    times as long as computing.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1 if small else threads)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
