"""Ids as the store keeps them: text, whatever kind the model's log has."""

import re
from collections.abc import Iterable, Sequence
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


def codes_of(raws: Sequence[int | str], ids: Vocabulary) -> NDArray[np.int64]:
    """Codes of a few ids of either kind, as `encode` finds them by `as_text`; 0 for unknown ones.

    Examples
    --------
    >>> codes_of(["007", 8, "x"], Vocabulary(pl.Series([7, 8]))), codes_of([7, "7"], Vocabulary(pl.Series(["7"])))
    (array([1, 2, 0]), array([1, 1]))
    """
    kind = ids.ids.dtype
    own: Iterable[Any]
    if kind.is_integer():
        own = (raw if isinstance(raw, int) else int(raw) if _INTEGER.fullmatch(raw) else None for raw in raws)
    elif kind == pl.String:
        own = map(str, raws)
    else:
        return encode([as_text(raw, ids) for raw in raws], ids)
    return np.fromiter(map(ids.code, own), dtype=np.int64, count=len(raws))


def encode(texts: Sequence[str], ids: Vocabulary) -> NDArray[np.int64]:
    """Codes of ids that are given as text; 0 for unknown ones."""
    return ids.encode(pl.Series(texts, dtype=pl.String)).astype(np.int64)
