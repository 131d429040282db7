"""The formats that a log can come in: files by their suffix, and dataframes."""

import csv
import glob
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl

from marsrec.data.checks import counted, is_usual_name, quoted
from marsrec.errors import DataError

READ = ".csv, .tsv, .parquet, .jsonl, .ndjson, .json (a line per row), .inter (RecBole), .dat and .data (MovieLens)"
RECBOLE_TYPE = r":(token|float)(_seq)?$"  # what its headers append to a name
HEADERLESS = {3: ["user", "item", "time"], 4: ["user", "item", "rating", "time"]}  # as MovieLens and Amazon have it
HEAD_LINES = 1000  # of json lines, to learn the names of the columns


@dataclass(frozen=True)
class Table:
    """The columns that a source has, and how to get some of them."""

    names: list[str]
    read: Callable[[list[str]], pl.DataFrame]
    notes: tuple[str, ...] = ()


def open_dataframe(source: Any) -> Table:
    """A dataframe of any library that narwhals knows."""
    try:
        frame = nw.from_native(source)
        names = [str(name) for name in frame.collect_schema().names()]
    except (TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
        raise DataError(
            f"dataframe: cannot read a {type(source).__name__} ({_first_line(error)}). "
            "Give a path, or a dataframe of pandas, polars or pyarrow with a name for each column."
        ) from error

    def read(columns: list[str]) -> pl.DataFrame:
        try:
            chosen = frame.select(columns)
            return (chosen.collect("polars") if isinstance(chosen, nw.LazyFrame) else chosen).to_polars()
        except (TypeError, ValueError, OSError, pl.exceptions.PolarsError) as error:
            raise DataError(
                f"dataframe: cannot convert the columns {quoted(columns)} ({_first_line(error)}). "
                "Give each column one type: ids all text or all integers, times all numbers, text or datetimes."
            ) from error

    return Table(names, read)


def open_file(path: Path) -> Table:
    """A file, by its suffix."""
    zipped = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if zipped else path).suffix.lower()
    openers: dict[str, Callable[[bytes | Path, Path], Table]] = {
        ".csv": partial(_open_delimited, separator=",", quote='"'),
        ".tsv": partial(_open_delimited, separator="\t", quote='"'),
        ".inter": partial(_open_delimited, separator="\t", quote=None),
        ".data": partial(_open_delimited, separator="\t", quote=None),
        ".dat": _open_double_colon,
        ".parquet": _open_parquet,
        **dict.fromkeys((".jsonl", ".ndjson", ".json"), _open_json_lines),
    }
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check the path; a log is one file.")
    if suffix not in openers:
        raise DataError(f"{path}: '{suffix}' is not a format that can be read. These are, each also with .gz: {READ}.")
    with _reading(path, "gzip" if zipped else suffix):
        data = gzip.decompress(path.read_bytes()) if zipped else path
        empty = not data if isinstance(data, bytes) else not path.stat().st_size
    if empty:
        raise DataError(f"{path}: the file is empty. A log needs at least one user, item and time.")
    return openers[suffix](data, path)


@contextmanager
def _reading(path: Path, kind: str, place: Callable[[], str | None] = lambda: None) -> Iterator[None]:
    """Turn what a broken file raises into an error that names the file and, where it can be found, the place."""
    try:
        yield
    except (pl.exceptions.PolarsError, OSError, EOFError, ValueError, zlib.error) as error:
        found = place() or _first_line(error)
        raise DataError(f"{path}: cannot be read as {kind}: {found}. Correct the file or fetch it again.") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _lines(data: bytes | Path) -> Iterator[bytes]:
    if isinstance(data, bytes):
        yield from data.splitlines(keepends=True)
    else:
        with data.open("rb") as file:
            yield from file


def _open_parquet(data: bytes | Path, path: Path) -> Table:
    with _reading(path, "parquet"):
        table = pl.scan_parquet(data, glob=False)
        names = table.collect_schema().names()

    def read(columns: list[str]) -> pl.DataFrame:
        with _reading(path, "parquet"):
            return table.select(columns).collect()

    return Table(names, read)


def _open_json_lines(data: bytes | Path, path: Path) -> Table:
    reading = partial(_reading, path, "json lines", partial(_broken_json_line, data))
    with reading():
        head = [json.loads(line) for line in islice(_lines(data), HEAD_LINES) if line.strip()]
        names = list(dict.fromkeys(key for row in head for key in dict(row)))
    integer = {name for name in names if all(type(row.get(name)) in (int, type(None)) for row in head)}

    plain = data if isinstance(data, bytes) else glob.escape(str(data))  # there is no glob=False here

    def read(columns: list[str]) -> pl.DataFrame:
        for name in columns:
            if any(isinstance(row.get(name), list | dict | bool) for row in head):
                raise DataError(f"{path}: column '{name}' does not hold plain text or numbers. Give one that does.")
        with reading():
            # As text first: a reader that guesses types rounds large integers beside a float.
            text = pl.scan_ndjson(plain, schema=dict.fromkeys(columns, pl.String)).collect()
        return text.with_columns(_integers(text[name]) for name in columns if name in integer)

    return Table(names, read)


def _integers(text: pl.Series) -> pl.Series:
    """Make integers of text if no digit is lost by it."""
    numbers = text.cast(pl.Int64, strict=False)
    return numbers if numbers.cast(pl.String).eq_missing(text).all() else text


def _broken_json_line(data: bytes | Path) -> str | None:
    for number, line in enumerate(_lines(data), 1):
        try:
            whole = not line.strip() or isinstance(json.loads(line), dict)
        except ValueError:
            whole = False
        if not whole:
            return f"line {number:,} is not a json object: {line[:60]!r}"
    return None


def _open_delimited(data: bytes | Path, path: Path, separator: str, quote: str | None) -> Table:
    read_csv = partial(pl.read_csv, data, separator=separator, quote_char=quote, infer_schema=False, glob=False)
    with _reading(path, "text with separators", partial(_broken_text_line, data, separator)):
        first = [re.sub(RECBOLE_TYPE, "", cell or "") for cell in read_csv(has_header=False, n_rows=1).row(0)]
        header = any(map(is_usual_name, first)) or not first[-1][:1].isdigit()
        # All columns, although three would do: only so are rows with too many fields noticed.
        frame = read_csv(has_header=header)
    if len(first) == 1 and (other := next((mark for mark in ";\t|" if mark in first[0] and mark != separator), None)):
        raise DataError(
            f"{path}: read with {separator!r} between the fields, the first line is one field ({first[0]!r}); "
            f"{other!r} looks like the separator. Write the file with commas (.csv) or tabs (.tsv)."
        )
    if header:
        return _in_memory(frame.rename(lambda name: re.sub(RECBOLE_TYPE, "", name)))
    if len(first) not in HEADERLESS:
        raise DataError(
            f"{path}: the first line holds data and no names ({quoted(first)}). Put a header line first; "
            "only 3 columns (user, item, time) or 4 (user, item, rating, time) are understood without one."
        )
    return _in_memory(frame, HEADERLESS[len(first)])


def _open_double_colon(data: bytes | Path, path: Path) -> Table:
    # A separator of two characters is beyond a csv reader, so it gets whole lines: no text holds this separator.
    with _reading(path, "MovieLens' ::", partial(_broken_text_line, data, "\x1f")):
        lines = pl.read_csv(data, separator="\x1f", quote_char=None, has_header=False, infer_schema=False, glob=False)
    fields = lines.to_series().str.splitn("::", 4).struct.unnest()
    if fields["field_3"].is_null().all():
        raise DataError(
            f"{path}: a .dat file is read as MovieLens' user::item::rating::time, and the first line is "
            f"{lines.item(0, 0)!r}. Rename the file after what it is, .csv or .tsv."
        )
    return _in_memory(fields, HEADERLESS[4])


def _in_memory(frame: pl.DataFrame, names: list[str] | None = None) -> Table:
    """Offer a text file's frame without the blank lines at its end, under the given names if it had no header."""
    notes = []
    if names is not None:
        frame.columns = names
        notes.append(f"there is no header; the columns are taken as {', '.join(names)}")
    filled = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
    height = filled[-1] + 1 if len(filled) else 0
    if height < frame.height:
        notes.append(f"skipped {counted(frame.height - height, 'blank line')} at the end")
    return Table(frame.columns, frame.head(height).select, tuple(notes))


def _broken_text_line(data: bytes | Path, separator: str) -> str | None:
    """Find the line that stopped the reader: one that is not UTF-8, or that has more fields than the first."""
    for number, line in enumerate(_lines(data), 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return f"line {number:,} of the file is not UTF-8 text"
    rows = csv.reader((line.decode() for line in _lines(data)), delimiter=separator)
    width = len(next(rows, []))
    for fields in rows:
        if len(fields) > width:
            return f"line {rows.line_num:,} of the file has {len(fields)} fields and the first line has {width}"
    return None
