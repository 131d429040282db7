"""A log of (user, item, time), read from a file or a dataframe and checked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

import polars as pl
from narwhals.typing import IntoFrame

from marsrec.data.checks import (
    Role,
    check_ids,
    check_ratings,
    counted,
    find_columns,
    without_bad_rows,
)
from marsrec.data.files import Form
from marsrec.data.formats import open_dataframe, open_files
from marsrec.data.times import TimeUnit, doubtful, parse_times, utc_date
from marsrec.errors import DataError, warn
from marsrec.settings import Settings

__all__ = ["Log", "LogSettings", "TimeUnit", "read_log"]


class LogSettings(Settings):
    """How a log is to be read."""

    user: str | None = None
    """Column of the users. If not given, it is found by its usual names, like the other columns."""
    item: str | None = None
    """Column of the items."""
    time: str | None = None
    """Column of the times."""
    rating: str | None = None
    """Column of the ratings, needed only with --min-rating."""
    min_rating: float | None = None
    """Leave out rows with a lower rating."""
    unit: Literal["auto", "d", "s", "ms", "us", "ns"] = "auto"
    """Unit of numeric times (d: days). Text and date columns need none."""
    time_format: str | None = None
    """How times are written as text, in the letters of strptime, such as %d.%m.%Y %H:%M. ISO text needs none."""
    separator: str | None = None
    """Between the fields of a text file: one character, or tab. By default it is found out."""
    encoding: str = "utf-8"
    """Of text files, by Python's names, such as latin-1, cp1252 or utf-16."""
    deduplicate: bool = False
    """Drop exact repeats of a user, item and time, and keep the first."""
    drop_bad_rows: bool = False
    """Drop and count unusable rows instead of ending with an error."""

    @property
    def columns(self) -> "LogSettings":
        """Only how columns are called and how fields are written: what goes for other files of the same kind, too."""
        return LogSettings(**self.model_dump(include=_OF_A_KIND))


_OF_A_KIND = {"user", "item", "time", "unit", "time_format", "separator", "encoding"}


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


def read_log(source: str | Path | Sequence[str | Path] | IntoFrame, settings: LogSettings = _DEFAULTS) -> Log:
    """Read a log from a file or a dataframe, find its columns and the unit of its times, and check every row.

    Parameters
    ----------
    source : str, Path, several of them, or dataframe
        A csv, tsv, parquet, jsonl, xlsx, `.inter`, `ratings.dat` or `u.data` file, each also with `.gz`; a folder of
        such parts, a pattern, or a list; or a dataframe of pandas, polars (also lazy), pyarrow or whatever else
        narwhals knows.
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
    if are_paths(source):
        name = str(source) if isinstance(source, str | Path) else f"{source[0]} and others"
        form = Form(settings.separator, settings.encoding, settings.drop_bad_rows)
        table = open_files(source, form)
    else:
        name, table = "dataframe", open_dataframe(source)
    named: dict[Role, str | None] = {"user": settings.user, "item": settings.item, "time": settings.time}
    if settings.min_rating is not None:
        named["rating"] = settings.rating
    columns = find_columns(table.names, named, name)
    raw = table.read(list(columns.values()))
    if raw.is_empty():
        raise DataError(f"{name}: there are no rows in it. A log needs at least one user, item and time.")

    users, user_faults = check_ids(raw[columns["user"]], columns["user"], name)
    items, item_faults = check_ids(raw[columns["item"]], columns["item"], name)
    times = parse_times(raw[columns["time"]], settings.unit, name, form=settings.time_format)
    frame = pl.DataFrame({"user": users, "item": items, "time": times.values})
    faults = [*user_faults, *item_faults, *times.faults]
    notes = [*table.notes, "columns: " + ", ".join(f"{role} = '{column}'" for role, column in columns.items())]
    if settings.min_rating is not None:
        ratings, rating_faults = check_ratings(raw[columns["rating"]], columns["rating"])
        frame, faults = frame.with_columns(rating=ratings), faults + rating_faults
    if faults:
        frame, note = without_bad_rows(frame, raw, faults, name, settings.drop_bad_rows, table.parts)
        notes.append(note)
    if settings.min_rating is not None:
        frame, note = _without_low_ratings(frame, settings.min_rating, name)
        notes.append(note)

    first, last = (utc_date(time, times.unit) for time in frame.select(pl.min("time"), last=pl.max("time")).row(0))
    notes.append(f"times are {times.recognised} (column '{columns['time']}', {first} to {last} UTC)")
    if (doubt := doubtful(frame["time"], times, guessed=settings.unit == "auto")) is not None:
        warn(f"{name}: {doubt}")
    if repeats := frame.height - frame.n_unique():
        if settings.deduplicate:
            frame = frame.unique(keep="first", maintain_order=True)
        done = "dropped" if settings.deduplicate else "kept; the setting deduplicate (--deduplicate) drops them"
        notes.append(f"{counted(repeats, 'exact repeat')} of an earlier (user, item, time): {done}")
    return Log(frame, times.unit, tuple(notes), name)


def are_paths(source: Any) -> TypeGuard[str | Path | Sequence[str | Path]]:
    """Whether a source is a path, or several."""
    several = isinstance(source, list | tuple) and all(isinstance(one, str | Path) for one in source)
    return several or isinstance(source, str | Path)


def _without_low_ratings(frame: pl.DataFrame, minimum: float, name: str) -> tuple[pl.DataFrame, str]:
    kept = frame.filter(pl.col("rating") >= minimum).drop("rating")
    if kept.is_empty():
        highest = max(frame["rating"])
        raise DataError(f"{name}: no rating reaches min_rating {minimum:g}; the highest is {highest:g}. Lower it.")
    return kept, f"dropped {counted(frame.height - kept.height, 'row')} with a rating below {minimum:g}"
