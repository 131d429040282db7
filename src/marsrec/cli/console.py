"""What the terminal shows: tables and sentences. Results go to stdout, everything else to stderr."""

import json
import logging
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

if TYPE_CHECKING:
    import polars as pl

    from marsrec.recommender import Recommender

results = Console()
remarks = Console(stderr=True, highlight=False)


class Handler(logging.Handler):
    """Prints what the library logs, as one more remark."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record: what is worth a warning says so."""
        grave = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        note(grave + self.format(record))


@contextmanager
def listening() -> Iterator[None]:
    """Print what the library logs meanwhile."""
    logger, handler = logging.getLogger("marsrec"), Handler()
    level = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def sentence(text: str) -> None:
    """Print a result that is a sentence."""
    results.print(text, markup=False, soft_wrap=True, highlight=False)


def as_json(value: Any) -> None:
    """Print a result for programs."""
    print(json.dumps(value, indent=2, default=str))


def note(sentence: str) -> None:
    """Say something that is not the result."""
    remarks.print(sentence, markup=False, soft_wrap=True)


imported: list[str] = []
"""Modules with parts that this command line imported."""


def command(program: str, *words: str | int | Path) -> str:
    """A command as a shell takes it: what holds blanks or quotes is quoted, and imports are repeated.

    Examples
    --------
    >>> command("marsrec", "recommend", Path("my runs/shop"), "--user", 17)
    "marsrec recommend 'my runs/shop' --user 17"
    """
    imports = [word for module in imported for word in ("--import", module)]
    return shlex.join([program, *imports, *map(str, words)])


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Print a table; numbers are aligned on the right."""
    rows = [[_text(cell) for cell in row] for row in rows]
    named = any(columns)
    grid = Table(header_style="bold", show_header=named)
    for index, column in enumerate(columns):
        numeric = all(_is_number(row[index]) for row in rows if row[index])  # an empty cell is neither
        grid.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        grid.add_row(*map(escape, row))  # an id or a title may look like markup
    # A file or a pipe has no width to fit into. A title of the grid itself would be broken to the grid's width.
    console = results if results.is_terminal else Console(file=results.file, width=200)
    console.print(title, style="bold", markup=False, highlight=False)
    console.print(grid)


def metrics(title: str, measured: Mapping[str, Mapping[str, float]]) -> None:
    """Print metrics (× 100) with a row per name."""
    names = list(next(iter(measured.values())))
    table(title, ["", *names], [[name, *(f"{100 * row[m]:.2f}" for m in names)] for name, row in measured.items()])


def with_titles(table: "pl.DataFrame", recommender: "Recommender") -> "pl.DataFrame":
    """A table of items with what they are called, where that is known."""
    if recommender.item_ids.titles is None or table.is_empty():
        return table
    titles = recommender.item_ids.frame("item").select("item", "title")
    return table.join(titles, on="item", how="left", maintain_order="left")


def _text(cell: Any) -> str:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)


def _is_number(text: str) -> bool:
    return text.replace(",", "").replace(".", "").lstrip("+-").replace("e-", "").isdigit()
