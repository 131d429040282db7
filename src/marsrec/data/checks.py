"""Which column is which, what an id may be, and how bad rows are reported."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Literal

import polars as pl

from marsrec.errors import DataError, SettingsError

Role = Literal["user", "item", "time", "rating"]

# Compared without case, underscores, hyphens and blanks, and with or without a final "id": `userId`, `user_id`, `User`.
USUAL_NAMES: dict[Role, set[str]] = {
    "user": {"user", "u", "reviewer", "visitor", "session", "customer", "member"},
    "item": {
        *("item", "i", "movie", "asin", "parentasin", "business", "product", "track", "song", "artist", "book", "game"),
        *("video", "article", "news"),
    },
    "time": {
        *("time", "timestamp", "ts", "unixtime", "unixreviewtime", "date", "datetime", "createdat", "eventtime"),
        *("eventdate", "timems"),
    },
    "rating": {"rating", "stars", "overall", "score"},
}
SHOWN_ROWS = 5  # how many bad rows a message shows of each kind
LARGEST_EXACT_FLOAT = 2**53
MISSING = ("", "NULL", "null", "None", "nan", "NaN", "NA", "N/A", "<NA>", r"\N")
"""What stands in text for a value that is not there."""


@dataclass(frozen=True)
class Fault:
    """One way in which rows are bad."""

    column: str
    """The column as the source calls it."""
    what: str
    """Completes the sentence "column 'ts' …"."""
    mask: pl.Series
    """True where a row has this fault."""
    remedy: str = ""
    """What to do about it, where there is more to do than to correct the rows."""


def find_columns(names: Sequence[str], named: Mapping[Role, str | None], source: str) -> dict[Role, str]:
    """Find the column of each role, by the name that was given or else by the usual names.

    Parameters
    ----------
    names : sequence of str
        The columns that there are.
    named : mapping of role to str or None
        The roles to find; None = by the usual names.
    source : str
        What messages call the log.

    Returns
    -------
    dict of role to str

    Examples
    --------
    >>> find_columns(["userId", "movieId", "ts"], {"user": None, "item": None, "time": "ts"}, "log.csv")
    {'user': 'userId', 'item': 'movieId', 'time': 'ts'}
    """
    found: dict[Role, str] = {}
    missing: dict[Role, str] = {}
    for role, name in named.items():
        usual = [n for n in names if _squeezed(n) in USUAL_NAMES[role] and n not in named.values()]
        candidates = usual if name is None else [n for n in names if n == name]
        if not candidates:
            missing[role] = f"column '{name}'" if name is not None else f"{role} column"
            continue
        if len(candidates) > 1:
            raise DataError(
                f"{source}: the columns {quoted(candidates)} could all hold the {role}. {_name_them([role])}"
            )
        found[role] = candidates[0]
    if missing:
        what = ", no ".join(missing.values())
        raise DataError(f"{source}: found no {what} among the columns {quoted(names)}. {_name_them(list(missing))}")
    if len(set(found.values())) < len(found):
        taken = ", ".join(f"{role} = '{name}'" for role, name in found.items())
        raise SettingsError(f"{source}: one column cannot play two roles ({taken}). Name a column of its own for each.")
    return found


def _name_them(roles: Sequence[Role]) -> str:
    options, settings = (" ".join(f"--{role} COLUMN" for role in roles), ", ".join(f"{role}=..." for role in roles))
    usual = " and ".join(f"'{role}'" for role in roles)
    return (
        f"Name what you mean: {options} of `marsrec fit` and `prepare`, in Python LogSettings({settings}); elsewhere "
        f"rename it to a usual name, such as {usual}."
    )


def quoted(names: Sequence[str]) -> str:
    """List names for a message."""
    return ", ".join(f"'{name}'" for name in names)


def is_usual_name(name: str, role: Role | None = None) -> bool:
    """Whether a log usually calls one of its columns, or that of a role, so.

    Examples
    --------
    >>> is_usual_name("reviewerID"), is_usual_name("A1B2C3")
    (True, False)
    """
    return any(_squeezed(name) in usual for of, usual in USUAL_NAMES.items() if role in (None, of))


def _squeezed(name: str) -> str:
    # polars tells a repeated name in a csv header from the first by "_duplicated_0": the two are still ambiguous.
    return re.sub(r"_duplicated_\d+$|[_ -]", "", name).casefold().removesuffix("id")


def check_ids(column: pl.Series, name: str, source: str) -> tuple[pl.Series, list[Fault]]:
    """Bring ids to String or Int64, with null and a fault where there is no usable id.

    Text stays as it is; blank text, and what is written for a missing value (NULL, NA ...), counts as missing. Whole
    floats, which pandas makes of integers beside a NaN, become integers again.

    Parameters
    ----------
    column : pl.Series
        The ids as read.
    name, source : str
        What messages call the column and the log.

    Returns
    -------
    ids : pl.Series
    faults : list of Fault

    Examples
    --------
    >>> ids, faults = check_ids(pl.Series([7.0, float("nan")]), "uid", "dataframe")
    >>> ids.to_list(), [f.what for f in faults]
    ([7, None], ['is missing'])
    """
    dtype = column.dtype
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Null)):
        text = column.cast(pl.String)
        ids = text.set(text.str.strip_chars().is_in(MISSING), None)
        column = ids
    elif dtype.is_integer():
        ids = column.cast(pl.Int64, strict=False)
    elif dtype.is_float():
        column = column.cast(pl.Float64).fill_nan(None)
        exact = (column.floor() == column) & (column.abs() < LARGEST_EXACT_FLOAT)
        ids = column.set(~exact, None).cast(pl.Int64)
    else:
        raise DataError(f"{source}: column '{name}' holds {dtype}, and ids are text or integers. Convert it first.")
    faults = [
        Fault(name, "is missing", column.is_null()),
        Fault(name, "is not text or a whole number of at most 64 bits", column.is_not_null() & ids.is_null()),
    ]
    return ids, [fault for fault in faults if fault.mask.any()]


def check_ratings(column: pl.Series, name: str) -> tuple[pl.Series, list[Fault]]:
    """Bring ratings to Float64, with null and a fault where there is no number."""
    text = isinstance(column.dtype, pl.String)
    ratings = (
        (column.str.strip_chars().str.replace(",", ".", literal=True) if text else column)
        .cast(pl.Float64, strict=False)
        .fill_nan(None)
    )
    return ratings, [Fault(name, "is not a number", ratings.is_null())] if ratings.has_nulls() else []


def without_bad_rows(
    frame: pl.DataFrame,
    raw: pl.DataFrame,
    faults: Sequence[Fault],
    source: str,
    drop: bool,
    parts: Sequence[tuple[str, int]] = (),
) -> tuple[pl.DataFrame, str]:
    """Stop at bad rows with an error that names them, or drop them.

    Parameters
    ----------
    frame : pl.DataFrame
        The rows as checked.
    raw : pl.DataFrame
        The same rows as read, by the source's names of the columns.
    faults : sequence of Fault
        At least one.
    source : str
        What messages call the log.
    drop : bool
        Drop bad rows, unless all are bad.
    parts : sequence of (str, int)
        Files that the rows come from, where there are several, and their numbers of rows.

    Returns
    -------
    frame : pl.DataFrame
    note : str
        What was dropped.
    """
    bad = reduce(or_, (fault.mask for fault in faults))
    number, found = int(bad.sum()), [_describe(fault, raw[fault.column], parts) for fault in faults]
    if drop and number < frame.height:
        return frame.filter(~bad), f"dropped {counted(number, 'bad row')}: {'; '.join(found)}"
    lines = [f"  {line}{fault.remedy and f' ({fault.remedy})'}" for line, fault in zip(found, faults, strict=True)]
    if number < frame.height:
        remedy = "Correct them, or drop them by drop_bad_rows (--drop-bad-rows)."
    else:
        reading = ", or how they are read" * any(fault.remedy for fault in faults)
        remedy = f"No row is left to go on with: correct them{reading}."
    raise DataError(
        f"{source}: {number:,} of {counted(frame.height, 'row')} cannot be used "
        "(rows of data are counted from 1; a header is not counted):\n" + "\n".join(lines) + f"\n{remedy}"
    )


def _describe(fault: Fault, values: pl.Series, parts: Sequence[tuple[str, int]]) -> str:
    """Say in which rows a fault was found, with the values of the first few."""
    rows = fault.mask.arg_true()
    first = rows.head(SHOWN_ROWS)
    shown = [_place(row, parts) + _shown(values, row) for row in first]
    more = f" and {len(rows) - SHOWN_ROWS:,} more" if len(rows) > SHOWN_ROWS else ""
    return f"column '{fault.column}' {fault.what} in {counted(len(rows), 'row')}: {', '.join(shown)}{more}"


def _place(row: int, parts: Sequence[tuple[str, int]]) -> str:
    """The number of a row, from 1, in its file.

    Examples
    --------
    >>> _place(2, []), _place(2, [("a.csv", 2), ("b.csv", 5)])
    ('3', '1 of b.csv')
    """
    for file, length in parts:
        if row < length:
            return f"{row + 1:,} of {file}"
        row -= length
    return f"{row + 1:,}"


def _shown(values: pl.Series, row: int) -> str:
    try:
        value = values[row]
    except (ValueError, OverflowError, pl.exceptions.PanicException):
        return " (beyond the calendar)"  # a date that Python has none for
    if value is None:
        return ""
    return f" ({value!r})" if isinstance(value, str) else f" ({value})"


def counted(number: int, noun: str) -> str:
    """Write a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
