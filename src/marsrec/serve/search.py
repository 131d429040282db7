"""Finding ids by a part of them, of what people call them, or of their kind."""

from typing import Any

import polars as pl

from marsrec.data.histories import Vocabulary


class Index:
    """Ids, titles and categories in small letters, made once for all searches.

    Parameters
    ----------
    ids : Vocabulary
        What is searched.
    counts : array, optional
        Of what is found, the greatest come first; of equals the shorter ids, which puts numbers in order.

    Examples
    --------
    >>> index = Index(Vocabulary(pl.Series(["tea", "Steam", "milk"])), [1, 2, 3])
    >>> index.find("te", limit=10)["item"].to_list()
    ['tea', 'Steam']
    """

    def __init__(self, ids: Vocabulary, counts: Any = None) -> None:
        none = pl.lit(None, dtype=pl.String)
        table = ids.frame("item").with_columns(
            **({} if ids.titles is not None else {"title": none}),
            **({} if ids.categories is not None else {"category": none}),
        )
        table = table.with_columns(
            spelled=pl.col("item").cast(pl.String).str.to_lowercase(),
            called=pl.col("title").fill_null("").str.to_lowercase(),
            kind=pl.col("category").fill_null("").str.to_lowercase(),
            count=pl.lit(0) if counts is None else pl.Series(counts),
        )
        length = pl.col("spelled").str.len_chars()
        self.table = table.sort("count", length, "spelled", descending=[True, False, False])

    def find(self, text: str, limit: int) -> pl.DataFrame:
        """Ids that have a text in them, their titles or categories: those that begin with it, by count; then others."""
        either, needle = pl.col("spelled", "called", "kind"), text.lower()
        return (
            self.table.filter(pl.any_horizontal(either.str.contains(needle, literal=True)))
            .with_columns(late=~pl.any_horizontal(either.str.starts_with(needle)))
            .sort("late", maintain_order=True)
            .head(limit)
            .select("item", "title", "category", "count")
        )
