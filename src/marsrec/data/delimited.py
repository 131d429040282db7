"""Text with a row per line and a separator between the fields: csv, tsv and their like."""

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from marsrec.data.checks import counted, is_usual_name, quoted
from marsrec.data.files import Content, Form, Table, as_utf8, broken_encoding, head, lines, reading
from marsrec.errors import DataError, SettingsError

if TYPE_CHECKING:
    from _csv import Reader as Rows

RECBOLE_TYPE = r":(token|float)(_seq)?$"  # what its headers append to a name
HEADERLESS = {3: ["user", "item", "time"], 4: ["user", "item", "rating", "time"]}  # as MovieLens and Amazon have it
SEPARATORS = (",", "\t", ";", "|")
SNIFFED = 100  # lines that show which one it is
LARGEST_FIELD = 2**31 - 1  # the csv module's limit is a C long, which has 32 bits on Windows
NAMED = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";"}


def open_delimited(content: Content, path: Path, form: Form, *, usual: str, quote: str | None) -> Table:
    """A file whose fields are usually separated by `usual`."""
    content, notes = as_utf8(content, path, form.encoding)
    separator = _given(form.separator) or find_separator(head(content, SNIFFED), usual, quote)
    if separator != usual and form.separator is None:
        notes += (f"fields are separated by {separator!r}",)
    where = partial(_broken_line, content, separator, quote)
    kind = "text with separators"
    if form.drop_bad_rows:
        with reading(path, kind, partial(broken_encoding, content)):
            content, ragged = without_ragged_rows(content, separator, quote)
        if ragged:
            notes += (f"dropped {counted(ragged, 'row')} with more fields than the first line",)
    read_csv = partial(pl.read_csv, content, separator=separator, quote_char=quote, infer_schema=False, glob=False)
    with reading(path, kind, where):
        first = [re.sub(RECBOLE_TYPE, "", cell or "") for cell in read_csv(has_header=False, n_rows=1).row(0)]
        header = any(map(is_usual_name, first)) or not first[-1][:1].isdigit()
        # All columns, although three would do: only so are rows with too many fields noticed.
        frame = read_csv(has_header=header)
        if stray := _stray_return(frame):
            raise DataError(f"{path}: {stray}. Write the file with one kind of line ends.")
    if header:
        return _in_memory(frame.rename(lambda name: re.sub(RECBOLE_TYPE, "", name)), notes)
    if len(first) not in HEADERLESS:
        raise DataError(
            f"{path}: the first line holds data and no names ({quoted(first)}), in fields separated by {separator!r}. "
            "Put a header line first; only 3 columns (user, item, time) or 4 (user, item, rating, time) are "
            "understood without one. Another separator: --separator."
        )
    return _in_memory(frame, notes, HEADERLESS[len(first)])


def open_double_colon(content: Content, path: Path, form: Form) -> Table:
    """MovieLens' ratings.dat."""
    content, notes = as_utf8(content, path, form.encoding)
    # A separator of two characters is beyond a csv reader, so it gets whole lines: no text holds this separator.
    with reading(path, "MovieLens' ::", partial(_broken_line, content, "\x1f", None)):
        whole = pl.read_csv(
            content, separator="\x1f", quote_char=None, has_header=False, infer_schema=False, glob=False
        )
    fields = whole.to_series().str.splitn("::", 4).struct.unnest()
    if fields["field_3"].is_null().all():
        raise DataError(
            f"{path}: a .dat file is read as MovieLens' user::item::rating::time, and the first line is "
            f"{whole.item(0, 0)!r}. Rename the file after what it is, .csv or .tsv."
        )
    return _in_memory(fields, notes, HEADERLESS[4])


def find_separator(first: Sequence[str], usual: str, quote: str | None) -> str:
    """The separator that cuts the first lines into the most fields, as many in each; the usual one where none does.

    Examples
    --------
    >>> find_separator(["user;item;price", "u1;i1;12,50", "u2;i1;3,00"], ",", '"')
    ';'
    >>> find_separator(["user,item,tags", "u1,i1,a|b|c"], ",", '"')
    ','
    """
    best, most = usual, 1
    for separator in (usual, *(mark for mark in SEPARATORS if mark != usual)):
        with _large_fields():
            try:
                widths = {len(fields) for fields in _rows(first, separator, quote)}
            except csv.Error:
                continue
        if len(widths) == 1 and (width := widths.pop()) > most:
            best, most = separator, width
    return best


def without_ragged_rows(content: Content, separator: str, quote: str | None) -> tuple[Content, int]:
    """Leave out the rows that have more fields than the first, and count them."""
    text = [line.decode() for line in lines(content)]
    kept: list[str] = []
    done = ragged = width = 0
    with _large_fields():
        rows = _rows(text, separator, quote)
        for fields in rows:
            width = width or len(fields)
            if len(fields) > width:
                ragged += 1
            else:
                kept += text[done : rows.line_num]
            done = rows.line_num
    return ("".join(kept).encode(), ragged) if ragged else (content, 0)


def _given(separator: str | None) -> str | None:
    if separator is None:
        return None
    mark = NAMED.get(separator, separator)
    if len(mark.encode()) != 1 or mark in '\n\r"':
        raise SettingsError(f"separator={separator!r}: one character is wanted, such as ';', '|' or tab.")
    return mark


def _rows(text: Sequence[str], separator: str, quote: str | None) -> "Rows":
    if quote is None:
        return csv.reader(text, delimiter=separator, quoting=csv.QUOTE_NONE)
    return csv.reader(text, delimiter=separator, quotechar=quote)


@contextmanager
def _large_fields() -> Iterator[None]:
    """Let the standard library's reader take fields of any size; its limit is the process's."""
    limit = csv.field_size_limit(LARGEST_FIELD)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _stray_return(frame: pl.DataFrame) -> str | None:
    """Where a carriage return became part of a field that begins or ends a line."""
    for name, pattern in ((frame.columns[0], "^\r"), (frame.columns[-1], "\r$")):
        rows = frame[name].str.contains(pattern).fill_null(False).arg_true()
        if len(rows):
            return f"row {rows[0] + 1:,} has a carriage return where the line begins or ends (column {name.strip()!r})"
    return None


def _in_memory(frame: pl.DataFrame, notes: tuple[str, ...], names: list[str] | None = None) -> Table:
    """Offer a text file's frame without the blank lines at its end, under the given names if it had no header."""
    if names is not None:
        frame.columns = names
        notes += (f"there is no header; the columns are taken as {', '.join(names)}",)
    filled = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
    height = filled[-1] + 1 if len(filled) else 0
    if height < frame.height:
        notes += (f"skipped {counted(frame.height - height, 'blank line')} at the end",)
    return Table(frame.columns, frame.head(height).select, list(notes))


def _broken_line(content: Content, separator: str, quote: str | None) -> str | None:
    """Find the line that stopped the reader: one that is not UTF-8, or that has more fields than the first."""
    if (found := broken_encoding(content)) is not None:
        return found
    with _large_fields():
        rows = _rows([line.decode() for line in lines(content)], separator, quote)
        width = 0
        try:
            for fields in rows:
                width = width or len(fields)
                if len(fields) > width:
                    return (
                        f"line {rows.line_num:,} of the file has {len(fields)} fields and the first line has {width} "
                        "(--drop-bad-rows drops such rows)"
                    )
        except csv.Error as error:
            return f"line {rows.line_num:,} of the file: {error}"
    return None
