"""One number of threads for torch and numba, which share an OpenMP runtime and would otherwise set each other's."""

from collections.abc import Iterator
from contextlib import contextmanager

import numba
import torch


@contextmanager
def like_torch() -> Iterator[None]:
    """Run numba kernels with as many threads as torch has, and leave torch's number as it was.

    A parallel numba kernel sets the number of OpenMP threads for the whole process, torch included.
    """
    threads = torch.get_num_threads()
    numba.set_num_threads(min(threads, numba.config.NUMBA_NUM_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(threads)
