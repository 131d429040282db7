"""Titles of items, what people read instead of ids, and their categories."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import polars as pl

from marsrec.data.checks import is_usual_name, quoted
from marsrec.data.formats import open_dataframe, open_file
from marsrec.data.histories import Histories, Vocabulary
from marsrec.errors import DataError

ITEM_COLUMNS = ("item", "item_id")  # before the other names that logs give to items, and before a mere id
TITLE_COLUMNS = ("title", "name", "label")
CATEGORY_COLUMN = "category"


def with_titles(histories: Histories, source: Path | pl.DataFrame) -> tuple[Histories, str]:
    """Histories whose items have titles, and a sentence on how many got one.

    Parameters
    ----------
    histories : Histories
        What to give titles to.
    source : Path or DataFrame
        A file of any format that a log can have, or a dataframe, with a column of items and one of titles; one that is
        called category is taken along. Of several titles of an item the first counts.

    Examples
    --------
    >>> from marsrec.data.log import read_log
    >>> log = read_log(pl.DataFrame({"user": [1, 1], "item": [7, 9], "time": [5, 6]}))
    >>> titles = pl.DataFrame({"item": [9, 7, 8], "title": ["Milk", "Tea", "Beer"]})
    >>> named, said = with_titles(Histories.from_log(log), titles)
    >>> named.item_ids.titles.to_list(), said
    (['Tea', 'Milk'], 'all 2 items have a title')
    """
    table = open_file(source) if isinstance(source, Path) else open_dataframe(source)
    place = str(source) if isinstance(source, Path) else "dataframe"
    item = _column(table.names, _item_rank, "item", place)
    title = _column(table.names, _title_rank, "title", place)
    category = [name for name in table.names if name.lower() == CATEGORY_COLUMN][:1]
    ids = histories.item_ids.ids
    known = table.read([item, title, *category]).select(
        pl.col(item).cast(ids.dtype, strict=False).alias("item"),
        *(pl.col(name).cast(pl.String).str.strip_chars().replace("", None) for name in (title, *category)),
    )
    known = known.drop_nulls(["item", title]).unique("item", keep="first", maintain_order=True)
    known = pl.DataFrame({"item": ids}).join(known, on="item", how="left", maintain_order="left")
    titles, *categories = (known[name] for name in (title, *category))
    missing = titles.null_count()
    if missing == len(ids):
        raise DataError(
            f"{place}: no item of its column {item!r} is in the log, whose items are like {ids[0]!r}. "
            "Give the file that belongs to the log."
        )
    said = (
        f"{len(ids) - missing:,} of {len(ids):,} items have a title"
        if missing
        else f"all {len(ids):,} items have a title"
    )
    return replace(histories, item_ids=Vocabulary(ids, titles, *categories)), said


def _column(names: list[str], rank: Callable[[str], int | None], what: str, place: str) -> str:
    """The column of the best rank; of equals the first."""
    ranked = [(order, index) for index, name in enumerate(names) if (order := rank(name)) is not None]
    if not ranked:
        raise DataError(f"{place}: has no column of {what}s; found {quoted(names)}. Call it {what!r}.")
    return names[min(ranked)[1]]


def _item_rank(name: str) -> int | None:
    plain = name.lower()
    if plain in ITEM_COLUMNS:
        return ITEM_COLUMNS.index(plain)
    return len(ITEM_COLUMNS) if is_usual_name(name, "item") else len(ITEM_COLUMNS) + 1 if plain == "id" else None


def _title_rank(name: str) -> int | None:
    return TITLE_COLUMNS.index(name.lower()) if name.lower() in TITLE_COLUMNS else None
