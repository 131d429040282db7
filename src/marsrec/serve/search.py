"""Finding ids by a part of them, or of what people call them."""

from typing import Any

import polars as pl

from marsrec.data.histories import Vocabulary


class Index:
    """Ids and titles in small letters, made once for all searches.

    Parameters
    ----------
    ids : Vocabulary
        What is searched.
    counts : array, optional
        Of what is found, the greatest come first; of equals the shorter ids, which puts numbers in order.

    Examples
    --------
    >>> index = Index(Vocabulary(pl.Series(["tea", "Steam", "milk"])), [1, 2, 3])
    >>> index.find("te", limit=10)["id"].to_list()
    ['tea', 'Steam']
    """

    def __init__(self, ids: Vocabulary, counts: Any = None) -> None:
        titles = pl.Series([None] * len(ids), dtype=pl.String) if ids.titles is None else ids.titles
        table = pl.DataFrame({"id": ids.ids, "title": titles}).with_columns(
            spelled=pl.col("id").cast(pl.String).str.to_lowercase(),
            called=pl.col("title").fill_null("").str.to_lowercase(),
            count=pl.lit(0) if counts is None else pl.Series(counts),
        )
        length = pl.col("spelled").str.len_chars()
        self.table = table.sort("count", length, "spelled", descending=[True, False, False])

    def find(self, text: str, limit: int) -> pl.DataFrame:
        """Ids that have a text in them or in their titles: those that begin with it, by count; then the others."""
        either, needle = pl.col("spelled", "called"), text.lower()
        return (
            self.table.filter(pl.any_horizontal(either.str.contains(needle, literal=True)))
            .with_columns(late=~pl.any_horizontal(either.str.starts_with(needle)))
            .sort("late", maintain_order=True)
            .head(limit)
            .select("id", "title", "count")
        )
