from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import polars as pl
import pytest

from marsrec.data.log import LogSettings, read_log
from marsrec.data.times import parse_times
from marsrec.errors import DataError

BERLIN = timezone(timedelta(hours=2))


def times(*values: object, dtype: pl.DataType | type[pl.DataType] | None = None) -> pl.Series:
    return pl.Series("ts", list(values), dtype=dtype, strict=False)


@pytest.mark.parametrize(
    ("column", "expected", "unit"),
    [
        (times(978300760, 978302109), [978300760, 978302109], "s"),
        (times(0, 5, 86400), [0, 5, 86400], "s"),
        (times(978300760000, 978302109001), [978300760000, 978302109001], "ms"),
        (times(1406073600123456), [1406073600123456], "us"),
        (times(1406073600123456789), [1406073600123456789], "ns"),
        (times("1406073600123456789", " 1406073600123456788"), [1406073600123456789, 1406073600123456788], "ns"),
        (times("978300760.0", "9.78300761e8"), [978300760, 978300761], "s"),
        (times("1406073600.123456789"), [1406073600123456789], "ns"),
        (times(978300760.0, 978302109.0), [978300760, 978302109], "s"),
        (times(1577836800.25, 1577836801.0), [1577836800250, 1577836801000], "ms"),
        (times(1577836800.123456), [1577836800123456], "us"),
        (times(1577836800123.456), [1577836800123456], "us"),
        (times(Decimal("1577836800.5")), [1577836800500], "ms"),
        (times(5, 6, dtype=pl.UInt8), [5, 6], "s"),
        (times("2014-07-23", "2014-07-23 10:00", "2014-07-23T10:00:01Z"), [1406073600, 1406109600, 1406109601], "s"),
        (times("2014-07-23T10:00:00+02:00", "2014-07-23T10:00:00-0030"), [1406102400, 1406111400], "s"),
        (times("2014-07-23T10:00:00.25", "2014-07-23T10:00:00"), [1406109600250, 1406109600000], "ms"),
        (times("2014-07-23 10:00:00.123456789"), [1406109600123456789], "ns"),
        (times(date(2014, 7, 23)), [1406073600], "s"),
        (times(datetime(2014, 7, 23, 10)), [1406109600], "s"),
        (times(datetime(2014, 7, 23, 10, microsecond=1000)), [1406109600001], "ms"),
        (times(datetime(2014, 7, 23, 10, tzinfo=BERLIN)), [1406102400], "s"),
        (times(1406109600123456789, dtype=pl.Datetime("ns")), [1406109600123456789], "ns"),
        (times(20140723, 20140724), [1406073600, 1406160000], "s"),
    ],
)
def test_times_are_exact_integers_in_the_recognised_unit(column: pl.Series, expected: list[int], unit: str) -> None:
    parsed = parse_times(column)
    assert not parsed.faults
    assert parsed.values.dtype == pl.Int64
    assert parsed.values.to_list() == expected
    assert parsed.unit == unit


def test_a_zoned_column_is_brought_to_utc() -> None:
    local = pl.Series("ts", [datetime(2014, 7, 23, 10)]).dt.replace_time_zone("Europe/Berlin")
    assert parse_times(local).values.to_list() == [1406102400]


def test_the_unit_can_be_declared() -> None:
    assert parse_times(times(0, 10**10), "ms").values.to_list() == [0, 10**10]
    assert parse_times(times(20140723), "s").values.to_list() == [20140723]


@pytest.mark.parametrize(
    ("column", "what", "rows"),
    [
        (times(1406073600, 1406073600000, 1406073601), "mixes units: most rows are in seconds", [1]),
        (times(1406073600000, 1406073601000, 1406073600), "mixes units: most rows are in milliseconds", [2]),
        (times("1406073600", "2014-07-23", "1406073601"), "is not a time", [1]),
        (times("2014-07-23", "2014-02-30", "2014-07-23T25:00:00", "07/23/2014"), "is not a time", [1, 2, 3]),
        (times("2014-07-23", "1969-12-31"), "is negative or before 1970", [1]),
        (times("2014-07-23", "2999-01-01"), "is later than the year 2100", [1]),
        (times(5.0, float("inf"), 6.0), "is later than the year 2100", [1]),
        (times("5", "-0.5"), "is negative or before 1970", [1]),
        (times(5.0, float("nan")), "is missing", [1]),
        (times("5", " "), "is missing", [1]),
        (times(None, None), "is missing", [0, 1]),
    ],
)
def test_bad_times_are_marked(column: pl.Series, what: str, rows: list[int]) -> None:
    parsed = parse_times(column)
    (fault,) = parsed.faults
    assert fault.what.startswith(what)
    assert fault.mask.arg_true().to_list() == rows
    assert parsed.values.is_null().arg_true().to_list() == rows


def test_mixed_units_name_the_rows_and_the_remedy() -> None:
    data = pl.DataFrame({"user": list("abc"), "item": list("xyz"), "ts": [1406073600, 1406073600000, 1406073601]})
    with pytest.raises(DataError, match=r"column 'ts' mixes units.* in 1 row: 2 \(1406073600000\) \(.*--unit s"):
        read_log(data)
    assert read_log(data, LogSettings(drop_bad_rows=True)).frame["user"].to_list() == ["a", "c"]


@pytest.mark.parametrize(
    ("values", "note"),
    [
        ([1325462400000, 1406073600000], "times are in milliseconds (column 'ts', 2012-01-02 to 2014-07-23 UTC)"),
        ([0.5, 1.0], "times are in seconds with fractions, kept in milliseconds (column 'ts', 1970-01-01 to"),
        (
            ["2012-01-02", "2014-07-23"],
            "times are ISO text, kept in seconds (column 'ts', 2012-01-02 to 2014-07-23 UTC)",
        ),
        ([20120102, 20140723], "times are dates written as 20120102, kept in seconds (column 'ts', 2012-01-02 to"),
    ],
)
def test_the_note_says_what_was_recognised(values: list[object], note: str) -> None:
    log = read_log(pl.DataFrame({"user": ["a", "b"], "item": ["x", "y"], "ts": values}))
    assert log.notes[-1].startswith(note)


def test_a_column_of_no_times_is_an_error() -> None:
    with pytest.raises(DataError, match=r"log: column 'ts' holds Boolean, which is not a time"):
        parse_times(times(True))


@pytest.mark.parametrize("absurd", [float("inf"), -1e17, 1e300])
def test_an_absurd_row_does_not_round_the_others(absurd: float) -> None:
    times = parse_times(pl.Series("t", [1_600_000_000.25, 1_600_000_000.75, absurd]))
    assert times.values.to_list() == [1_600_000_000_250, 1_600_000_000_750, None]
    assert times.unit == "ms"
