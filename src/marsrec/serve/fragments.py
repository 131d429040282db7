"""Items as JSON, spelled once and not for each answer."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from marsrec.data.histories import Vocabulary


class ItemFragments:
    """The fields of `schemas.NamedItem` for every item, one text after the other in one array.

    Examples
    --------
    >>> fragments = ItemFragments(Vocabulary(pl.Series(["tea", "a b"]), titles=pl.Series(["Tea", None])))
    >>> fragments[1]
    b'"item":"tea","title":"Tea","category":null'
    """

    def __init__(self, ids: Vocabulary) -> None:
        nothing = pl.Series([None], dtype=pl.String).new_from_index(0, len(ids))
        columns = {"item": ids.ids, "title": ids.titles, "category": ids.categories}
        table = pl.DataFrame({name: nothing if column is None else column for name, column in columns.items()})
        spelled = table.select(pl.struct(*columns).struct.json_encode()).to_series()
        lengths = spelled.str.len_bytes().to_numpy()
        self._ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self._text = spelled.str.join("")[0].encode() if len(ids) else b""

    def __getitem__(self, code: int) -> bytes:
        return self._text[self._ends[code - 1] + 1 : self._ends[code] - 1]  # without the braces


def ranked(fragments: ItemFragments, codes: Sequence[int], scores: Sequence[float]) -> bytes:
    """Recommended items, the best first, as the list of `Recommended` without explanations that they are.

    Examples
    --------
    >>> ranked(ItemFragments(Vocabulary(pl.Series([7]))), [1], [0.5])
    b'[{"item":7,"title":null,"category":null,"rank":1,"score":0.5,"explanation":null}]'
    """
    rows = (
        b'{%b,"rank":%d,"score":%b,"explanation":null}' % (fragments[code], rank, repr(score).encode())
        for rank, (code, score) in enumerate(zip(codes, scores, strict=True), start=1)
    )
    return b"[%b]" % b",".join(rows)
