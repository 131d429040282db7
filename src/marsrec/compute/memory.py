"""Memory that is free, back to the system; and what is said where it runs out, or the disk does."""

import ctypes
import errno
import re
from functools import cache
from typing import Any

from marsrec.atomic import FULL


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


TOO_LARGE = re.compile(r"allocate (?:memory: you tried to allocate )?([\d.,]+ ?\w*)")


def exhausted(error: BaseException) -> str | None:
    """What ran out, and how much was wanted, if an error says that the disk or the memory did; None for other errors.

    Examples
    --------
    >>> exhausted(OSError(28, "No space left on device", "runs/model.safetensors"))
    'runs/model.safetensors: the disk is full. Free some of it.'
    >>> exhausted(RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 12800 bytes."))
    'there is not enough memory: 12800 bytes more were wanted. Free some, or take a smaller --targets-per-batch.'
    """
    text = str(error)
    if (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or any(
        mark in text for mark in FULL
    ):
        place = f"{error.filename}: " if isinstance(error, OSError) and error.filename else ""
        return f"{place}the disk is full. Free some of it."
    if isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text.lower():
        wanted = f": {found[1]} more were wanted" if (found := TOO_LARGE.search(text)) else ""
        return f"there is not enough memory{wanted}. Free some, or take a smaller --targets-per-batch."
    return None
