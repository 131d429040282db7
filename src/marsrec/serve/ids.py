"""Ids as the store keeps them: text, whatever kind the model's log has."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.histories import Vocabulary

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")


def as_text(raw: Any, ids: Vocabulary) -> str:
    """An id as the store keeps it: integers without sign and zeros in front where the ids are integers.

    Examples
    --------
    >>> as_text("007", Vocabulary(pl.Series([7, 8]))), as_text("007", Vocabulary(pl.Series(["007"])))
    ('7', '007')
    """
    text = str(raw)
    return str(int(text)) if ids.ids.dtype.is_integer() and _INTEGER.fullmatch(text) else text


def as_raw(text: str, ids: Vocabulary) -> int | str:
    """An id of the store as the kind that a vocabulary holds; text stays text where it is no integer."""
    return int(text) if ids.ids.dtype.is_integer() and _INTEGER.fullmatch(text) else text


def encode(texts: Sequence[str], ids: Vocabulary) -> NDArray[np.int64]:
    """Codes of ids that are given as text; 0 for unknown ones."""
    return ids.encode(pl.Series(texts, dtype=pl.String)).astype(np.int64)
