"""Memory that is free, back to the system."""

import ctypes
from functools import cache
from typing import Any


@cache
def _malloc_trim() -> Any:
    """The function of glibc; None where the C library is another."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None


def give_back() -> bool:
    """Give the free pages of the heap back to the system; False where the C library does not know how.

    Tensors of ever other sizes leave holes in glibc's heap, which it keeps: a training of hours would come to hold
    gigabytes more than it uses.
    """
    trim = _malloc_trim()
    return trim is not None and bool(trim(ctypes.c_size_t(0)))
