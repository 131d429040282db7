"""A log of (user, item, time), read from a file or a dataframe and checked."""

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
from typing import Any, Literal

import narwhals as nw
import polars as pl
from narwhals.typing import IntoFrame

from marsrec.data.checks import (
    Role,
    check_ids,
    check_ratings,
    counted,
    find_columns,
    is_usual_name,
    quoted,
    without_bad_rows,
)
from marsrec.data.times import TimeUnit, parse_times, utc_date
from marsrec.errors import DataError
from marsrec.settings import Settings

__all__ = ["Log", "LogSettings", "TimeUnit", "read_log"]

READ = ".csv, .tsv, .parquet, .jsonl, .ndjson, .json (a line per row), .inter (RecBole), .dat and .data (MovieLens)"
RECBOLE_TYPE = r":(token|float)(_seq)?$"  # what its headers append to a name
HEADERLESS = {3: ["user", "item", "time"], 4: ["user", "item", "rating", "time"]}  # as MovieLens and Amazon have it
HEAD_LINES = 1000  # of json lines, to learn the names of the columns


class LogSettings(Settings):
    """How a log is to be read."""

    user: str | None = None
    """The column of the users; None = found by the usual names."""
    item: str | None = None
    """The column of the items; None = found by the usual names."""
    time: str | None = None
    """The column of the times; None = found by the usual names."""
    rating: str | None = None
    """The column of the ratings, which only `min_rating` needs; None = found by the usual names."""
    min_rating: float | None = None
    """Leave out the rows with a smaller rating."""
    unit: TimeUnit | Literal["auto"] = "auto"
    """The unit of numeric times; text and datetime columns need none."""
    deduplicate: bool = False
    """Drop the exact repeats of a (user, item, time) and keep the first."""
    drop_bad_rows: bool = False
    """Drop and count the rows that cannot be used, instead of stopping at them."""


@dataclass(frozen=True, eq=False)
class Log:
    """Who took which item when, in file order.

    Examples
    --------
    >>> log = Log(pl.DataFrame({"user": ["ann", "ann"], "item": ["tea", "jam"], "time": [0, 60]}), unit="s")
    >>> len(log), log.n_users, log.n_items
    (2, 1, 2)
    """

    frame: pl.DataFrame
    """Columns user, item (String or Int64) and time (Int64)."""
    unit: TimeUnit
    """The unit of the times."""
    notes: tuple[str, ...] = ()
    """A sentence for each thing that was recognised, counted or dropped."""
    source: str = ""
    """What messages call the log: a path, or "dataframe"."""

    def __len__(self) -> int:
        return self.frame.height

    @property
    def n_users(self) -> int:
        """How many users there are."""
        return self.frame["user"].n_unique()

    @property
    def n_items(self) -> int:
        """How many items there are."""
        return self.frame["item"].n_unique()


_DEFAULTS = LogSettings()


def read_log(source: str | Path | IntoFrame, settings: LogSettings = _DEFAULTS) -> Log:
    """Read a log from a file or a dataframe, find its columns and the unit of its times, and check every row.

    Parameters
    ----------
    source : str, Path or dataframe
        A csv, tsv, parquet, jsonl, `.inter`, `ratings.dat` or `u.data` file, each also with `.gz`, or a dataframe of
        pandas, polars (also lazy), pyarrow or whatever else narwhals knows.
    settings : LogSettings, optional
        Names of columns, unit of times, and what to do with low ratings, repeats and bad rows.

    Returns
    -------
    Log

    Raises
    ------
    DataError
        If the source cannot be read, a column is missing or ambiguous, or a row cannot be used.

    Examples
    --------
    >>> frame = pl.DataFrame({"userId": [7, 7], "movieId": [1, 3], "ts": [978300760000, 978302109000]})
    >>> log = read_log(frame)
    >>> log.unit, log.frame.row(0)
    ('ms', (7, 1, 978300760000))
    >>> log.notes[-1]
    "times are in milliseconds (column 'ts', 2000-12-31 to 2000-12-31 UTC)"
    """
    name = str(source) if isinstance(source, str | Path) else "dataframe"
    table = _open_file(Path(source).expanduser()) if isinstance(source, str | Path) else _open_dataframe(source)
    asked: dict[Role, str | None] = {"user": settings.user, "item": settings.item, "time": settings.time}
    if settings.min_rating is not None:
        asked["rating"] = settings.rating
    columns = find_columns(table.names, asked, name)
    raw = table.read(list(columns.values()))
    if raw.is_empty():
        raise DataError(f"{name}: there are no rows in it. A log needs at least one user, item and time.")

    users, user_faults = check_ids(raw[columns["user"]], columns["user"], name)
    items, item_faults = check_ids(raw[columns["item"]], columns["item"], name)
    times = parse_times(raw[columns["time"]], settings.unit, name)
    frame = pl.DataFrame({"user": users, "item": items, "time": times.values})
    faults = [*user_faults, *item_faults, *times.faults]
    notes = [*table.notes, "columns: " + ", ".join(f"{role} = '{column}'" for role, column in columns.items())]
    if settings.min_rating is not None:
        ratings, rating_faults = check_ratings(raw[columns["rating"]], columns["rating"])
        frame, faults = frame.with_columns(rating=ratings), faults + rating_faults
    if faults:
        frame, note = without_bad_rows(frame, raw, faults, name, settings.drop_bad_rows)
        notes.append(note)
    if settings.min_rating is not None:
        frame, note = _without_low_ratings(frame, settings.min_rating, name)
        notes.append(note)

    first, last = (utc_date(time, times.unit) for time in frame.select(pl.min("time"), last=pl.max("time")).row(0))
    notes.append(f"times are {times.recognised} (column '{columns['time']}', {first} to {last} UTC)")
    if repeats := frame.height - frame.n_unique():
        if settings.deduplicate:
            frame = frame.unique(keep="first", maintain_order=True)
        done = "dropped" if settings.deduplicate else "kept; the setting deduplicate (--deduplicate) drops them"
        notes.append(f"{counted(repeats, 'exact repeat')} of an earlier (user, item, time): {done}")
    return Log(frame, times.unit, tuple(notes), name)


def _without_low_ratings(frame: pl.DataFrame, minimum: float, name: str) -> tuple[pl.DataFrame, str]:
    kept = frame.filter(pl.col("rating") >= minimum).drop("rating")
    if kept.is_empty():
        highest = max(frame["rating"])
        raise DataError(f"{name}: no rating reaches min_rating {minimum:g}; the highest is {highest:g}. Lower it.")
    return kept, f"dropped {counted(frame.height - kept.height, 'row')} with a rating below {minimum:g}"


@dataclass(frozen=True)
class _Table:
    """The columns that a source has, and how to get some of them."""

    names: list[str]
    read: Callable[[list[str]], pl.DataFrame]
    notes: tuple[str, ...] = ()


def _open_dataframe(source: Any) -> _Table:
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

    return _Table(names, read)


def _open_file(path: Path) -> _Table:
    zipped = path.suffix.lower() == ".gz"
    suffix = (path.with_suffix("") if zipped else path).suffix.lower()
    openers: dict[str, Callable[[bytes | Path, Path], _Table]] = {
        ".csv": partial(_open_delimited, separator=",", quote='"'),
        ".tsv": partial(_open_delimited, separator="\t", quote='"'),
        ".inter": partial(_open_delimited, separator="\t", quote=None),
        ".data": partial(_open_delimited, separator="\t", quote=None),
        ".dat": _open_double_colon,
        ".parquet": _open_parquet,
        **dict.fromkeys((".jsonl", ".ndjson", ".json"), _open_json_lines),
    }
    if suffix not in openers:
        raise DataError(f"{path}: '{suffix}' is not a format that can be read. These are, each also with .gz: {READ}.")
    if not path.is_file():
        raise DataError(f"{path}: there is no such file. Check the path; a log is one file.")
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


def _open_parquet(data: bytes | Path, path: Path) -> _Table:
    with _reading(path, "parquet"):
        table = pl.scan_parquet(data, glob=False)
        names = table.collect_schema().names()

    def read(columns: list[str]) -> pl.DataFrame:
        with _reading(path, "parquet"):
            return table.select(columns).collect()

    return _Table(names, read)


def _open_json_lines(data: bytes | Path, path: Path) -> _Table:
    reading = partial(_reading, path, "json lines", partial(_broken_json_line, data))
    with reading():
        head = [json.loads(line) for line in islice(_lines(data), HEAD_LINES) if line.strip()]
        names = list(dict.fromkeys(key for row in head for key in dict(row)))
    integer = {name for name in names if all(type(row.get(name)) in (int, type(None)) for row in head)}

    plain = data if isinstance(data, bytes) else glob.escape(str(data))  # there is no glob=False here

    def read(columns: list[str]) -> pl.DataFrame:
        with reading():
            # As text first: a reader that guesses types rounds large integers beside a float.
            text = pl.scan_ndjson(plain, schema=dict.fromkeys(columns, pl.String)).collect()
        return text.with_columns(_integers(text[name]) for name in columns if name in integer)

    return _Table(names, read)


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


def _open_delimited(data: bytes | Path, path: Path, separator: str, quote: str | None) -> _Table:
    read_csv = partial(pl.read_csv, data, separator=separator, quote_char=quote, infer_schema=False, glob=False)
    with _reading(path, "text with separators", partial(_broken_text_line, data, separator)):
        first = [re.sub(RECBOLE_TYPE, "", cell or "") for cell in read_csv(has_header=False, n_rows=1).row(0)]
        header = any(map(is_usual_name, first)) or not first[-1][:1].isdigit()
        # All columns, although three would do: only so are rows with too many fields noticed.
        frame = read_csv(has_header=header)
    if header:
        return _in_memory(frame.rename(lambda name: re.sub(RECBOLE_TYPE, "", name)))
    if len(first) not in HEADERLESS:
        raise DataError(
            f"{path}: the first line holds data and no names ({quoted(first)}). Put a header line first; "
            "only 3 columns (user, item, time) or 4 (user, item, rating, time) are understood without one."
        )
    return _in_memory(frame, HEADERLESS[len(first)])


def _open_double_colon(data: bytes | Path, path: Path) -> _Table:
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


def _in_memory(frame: pl.DataFrame, names: list[str] | None = None) -> _Table:
    """Offer a text file's frame without the blank lines at its end, under the given names if it had no header."""
    notes = []
    if names is not None:
        frame.columns = names
        notes.append(f"there is no header; the columns are taken as {', '.join(names)}")
    filled = frame.select(~pl.all_horizontal(pl.all().is_null())).to_series().arg_true()
    height = filled[-1] + 1 if len(filled) else 0
    if height < frame.height:
        notes.append(f"skipped {counted(frame.height - height, 'blank line')} at the end")
    return _Table(frame.columns, frame.head(height).select, tuple(notes))


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
