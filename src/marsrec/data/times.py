"""Times as exact integers: what unit numbers are in, and what ISO text and datetime columns hold."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

import polars as pl

from marsrec.data.checks import MISSING, Fault
from marsrec.errors import DataError, SettingsError

TimeUnit = Literal["s", "ms", "us", "ns"]

PER_SECOND: dict[TimeUnit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
UNIT_NAMES: dict[TimeUnit, str] = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
END_OF_TIME = 4_102_444_800  # 2100-01-01 in seconds: no log reaches it, and 1000 times less is February 1970
MODERN = 315_532_800  # 1980-01-01: a number that is this late in another unit was most likely written in that unit
DAY = 86_400
COUNTERS = 1000  # numbers below count events rather than time
MANY = 1000  # events, of which a log seldom has as many within a day
SAMPLE = 1000  # texts that tell in which form all are written
FORMS = tuple(
    date + clock
    for date in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%m-%d-%Y")
    for clock in (" %H:%M", " %H:%M:%S", "", " %I:%M %p", " %I:%M:%S %p")
)
"""How shops write times beside ISO text: never guessed, since 01/02 may be either, but proposed."""
FLOAT_DIGITS = 16  # what a float64 between 1980 and 2100 holds: microseconds beside seconds

NUMBER = r"^\+?(\d+)(?:[.,](\d*))?$"
ISO = (
    r"^(?P<date>\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](?P<hour>\d{2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<fraction>\d+))?)?"
    r"\s?(?:[Zz]|UTC|(?P<sign>[+-])(?P<ahead_hour>\d{2}):?(?P<ahead_minute>\d{2})?)?)?$"
)


@dataclass(frozen=True)
class Times:
    """A column of times as exact integers."""

    values: pl.Series
    """Int64, null in the rows that have a fault."""
    unit: TimeUnit
    """The unit of `values`."""
    recognised: str
    """Completes the sentence "times are …"."""
    faults: list[Fault]
    numeric: bool = False
    """Whether they were numbers, whose unit is not written beside them."""


@dataclass(frozen=True)
class _Instants:
    """Whole units since 1970 and the billionths beside them, before the unit is known."""

    whole: pl.Series
    billionths: pl.Series | None = None
    unit: TimeUnit | None = None  # None = numbers, whose unit is still to be recognised
    recognised: str = ""


def parse_times(
    column: pl.Series,
    unit: TimeUnit | Literal["auto", "d"] = "auto",
    source: str = "log",
    *,
    form: str | None = None,
) -> Times:
    """Bring a column of times to exact int64 numbers since 1970 UTC.

    Numbers (also as text) keep their unit. ISO text, dates and datetimes get the coarsest unit that holds them exactly;
    without a time zone they are UTC. A float64 fraction is taken to the digits that the number can hold.

    Parameters
    ----------
    column : pl.Series
        Integers, floats, text, dates or datetimes.
    unit : {"auto", "d", "s", "ms", "us", "ns"}, default "auto"
        The unit of numbers; "auto" = the one in which most of them lie between 1970 and 2100, "d" = days.
    source : str, default "log"
        What messages call the log.
    form : str, optional
        How text is written, in the letters of strptime.

    Returns
    -------
    Times

    Examples
    --------
    >>> times = parse_times(pl.Series(["2014-07-23", "2014-07-23T10:00:00.5+02:00"]))
    >>> times.values.to_list(), times.unit
    ([1406073600000, 1406102400500], 'ms')
    """
    column = _tidy(column)
    instants = _read_instants(column, source) if form is None else _read_as(column, form)
    if instants.unit is None and unit == "d":
        instants = _as_days(instants)
    if instants.unit is None and unit == "auto":
        instants = _as_calendar(instants)
    whole = instants.whole
    known: TimeUnit = instants.unit or (recognise_unit(whole) if unit == "auto" or unit == "d" else unit)

    numeric = instants.unit is None
    faults = _find_faults(column, whole, known, numeric, guessed=numeric and unit == "auto")
    for fault in faults:
        whole = whole.set(fault.mask, None)

    values, final = _exact(whole, instants.billionths, known)
    if numeric:
        kept = "" if final == known else f" with fractions, kept in {UNIT_NAMES[final]}"
        return Times(values, final, f"in {UNIT_NAMES[known]}{kept}", faults, numeric=True)
    values, final = _coarsest(values, final)
    return Times(values, final, f"{instants.recognised}, kept in {UNIT_NAMES[final]}", faults)


def _find_faults(column: pl.Series, whole: pl.Series, unit: TimeUnit, numeric: bool, guessed: bool) -> list[Fault]:
    name, unit_name = column.name, UNIT_NAMES[unit]
    late = (whole >= END_OF_TIME * PER_SECOND[unit]).fill_null(False)
    other = _in_other_units(whole, unit) if guessed else pl.repeat(False, len(whole), dtype=pl.Boolean, eager=True)
    not_a_time = "is not a time (a number, or ISO text such as 2014-07-23T10:00:00Z)"
    too_late = "is later than the year 2100" + f", read in {unit_name}," * numeric
    one_unit = f"if all rows are in one unit, name it by the setting unit, as in --unit {unit}"
    unread = whole.is_null() & column.is_not_null()
    faults = [
        Fault(name, "is missing", column.is_null()),
        Fault(name, not_a_time, unread, _propose_form(column, unread)),
        Fault(name, "is negative or before 1970", (whole < 0).fill_null(False)),
        Fault(name, f"mixes units: most rows are in {unit_name}, and another unit is likely", other, one_unit),
        Fault(name, too_late, late & ~other, "the setting unit (--unit) says in which unit all rows are" * numeric),
    ]
    return [fault for fault in faults if fault.mask.any()]


def _propose_form(column: pl.Series, unread: pl.Series) -> str:
    """The setting that reads most of a column that was not read; nothing where none does."""
    if not isinstance(column.dtype, pl.String) or 2 * unread.sum() <= column.count():
        return ""
    texts = column.filter(unread).head(SAMPLE)
    read = {form: len(texts) - texts.str.strptime(pl.Datetime("us"), form, strict=False).null_count() for form in FORMS}
    most = max(read.values())
    if 2 * most <= len(texts):
        return ""
    fit = " or ".join(f'"{form}"' for form, number in read.items() if number == most)
    return f"the setting time_format says how times are written, as in --time-format {fit}"


def doubtful(values: pl.Series, times: Times, *, guessed: bool) -> str | None:
    """What makes one doubt that times were understood, and the remedy; None where nothing does."""
    low, high = int(values.min()), int(values.max())  # type: ignore[arg-type]
    unit, second = times.unit, PER_SECOND[times.unit]
    if len(values) > 1 and low == high:
        return f"all times are equal ({utc_date(low, unit)} UTC): only the order of the rows tells what came first."
    if not guessed or not times.numeric or high < COUNTERS:
        return None
    if high < MODERN * second:
        as_days = DAY * low // second, DAY * high // second
        days = " --unit d if they are days;" if as_days[0] >= MODERN and as_days[1] < END_OF_TIME else ""
        return (
            f"numbers were taken for {UNIT_NAMES[unit]}, which puts all events between {utc_date(low, unit)} and "
            f"{utc_date(high, unit)}. If that is wrong, name the unit by the setting unit (--unit):{days} --unit s, "
            "ms, us or ns says that it is right."
        )
    if len(values) >= MANY and high - low < DAY * second:
        return (
            f"numbers were taken for {UNIT_NAMES[unit]}, so that all {len(values):,} events lie within "
            f"{(high - low) / second / 3600:.1f} hours. If that is wrong, name the unit by the setting unit (--unit)."
        )
    return None


def recognise_unit(values: pl.Series) -> TimeUnit:
    """Find the unit that puts most of the numbers between 1970 and 2100; small numbers are seconds.

    Examples
    --------
    >>> recognise_unit(pl.Series([978_300_760_000, 978_302_109_000]))
    'ms'
    """
    below = [0] + [int((values < END_OF_TIME * per_second).sum()) for per_second in PER_SECOND.values()]
    share = {unit: below[i + 1] - below[i] for i, unit in enumerate(PER_SECOND)}
    return max(share, key=share.__getitem__)


def utc_date(value: int, unit: TimeUnit) -> str:
    """Write a time as its UTC date.

    Examples
    --------
    >>> utc_date(978_300_760, "s")
    '2000-12-31'
    """
    epoch = datetime(1970, 1, 1, tzinfo=UTC)  # not fromtimestamp, to which Windows gives no time before it
    return (epoch + timedelta(seconds=value // PER_SECOND[unit])).date().isoformat()


def _tidy(column: pl.Series) -> pl.Series:
    """Make every missing time null, and reduce the types to the ones that are read below."""
    dtype = column.dtype
    if isinstance(dtype, (pl.String, pl.Categorical, pl.Enum, pl.Decimal, pl.Null)):
        text = column.cast(pl.String).str.strip_chars()
        return text.set(text.is_in(MISSING), None)
    return column.cast(pl.Float64).fill_nan(None) if dtype.is_float() else column


def _read_instants(column: pl.Series, source: str) -> _Instants:
    dtype = column.dtype
    if isinstance(dtype, pl.Date):
        return _Instants(column.to_physical().cast(pl.Int64) * DAY, unit="s", recognised="dates")
    if isinstance(dtype, pl.Datetime):
        return _Instants(column.to_physical(), unit=dtype.time_unit, recognised="datetimes")
    if dtype.is_integer():
        return _Instants(column.cast(pl.Int64, strict=False))
    if dtype.is_float():
        return _Instants(*_split_floats(column))
    if isinstance(dtype, pl.String):
        numbers = _split_numbers(column)
        if numbers.whole.null_count() == column.null_count():
            return numbers
        iso = _split_iso(column)
        return min(iso, numbers, key=lambda instants: instants.whole.null_count())
    raise DataError(
        f"{source}: column '{column.name}' holds {dtype}, which is not a time. "
        "Give numbers since 1970, ISO text, dates or datetimes."
    )


def _read_as(column: pl.Series, form: str) -> _Instants:
    """Text in a form of its own."""
    try:
        moments = column.cast(pl.String).str.strptime(pl.Datetime("us"), form, strict=False)
    except pl.exceptions.PolarsError as error:
        raise SettingsError(
            f"time_format={form!r}: {error}. Use the letters of strptime, as in %d.%m.%Y %H:%M."
        ) from None
    return _Instants(moments.to_physical(), unit="us", recognised=f"text written as {form}")


def _as_days(instants: _Instants) -> _Instants:
    """Days since 1970 as seconds; what is left of a day goes to the nearest second."""
    seconds = instants.whole * DAY
    if instants.billionths is not None:
        seconds = seconds + (instants.billionths * DAY + 500_000_000) // 10**9
    return _Instants(seconds, unit="s", recognised="days")


def _split_floats(column: pl.Series) -> tuple[pl.Series, pl.Series]:
    floor = column.floor()
    whole = floor.clip(-9.0e18, 9.0e18).cast(pl.Int64)
    plausible = whole.filter((floor >= 0) & (floor < END_OF_TIME * 1e9))  # one absurd row must not round the others
    largest = plausible.max()
    digits = max(0, min(9, FLOAT_DIGITS - len(str(largest or 0))))
    fraction = (column - floor).set(column.is_infinite(), 0.0)
    return whole, (fraction * 10**digits).round().cast(pl.Int64) * 10 ** (9 - digits)


def _split_numbers(column: pl.Series) -> _Instants:
    """Read decimal text without a detour through floats; only what is written as 9.7e8, or negative, takes it."""
    parts = column.str.extract_groups(NUMBER).struct.unnest()
    whole, billionths = parts["1"].cast(pl.Int64, strict=False), _billionths(parts["2"])
    unread = whole.is_null()
    if unread.sum() > column.null_count():
        floats, fractions = _split_floats(column.cast(pl.Float64, strict=False).fill_nan(None))
        whole, billionths = whole.zip_with(~unread, floats), billionths.zip_with(~unread, fractions)
    return _Instants(whole, billionths)


def _split_iso(column: pl.Series) -> _Instants:
    parts = column.str.extract_groups(ISO).struct.unnest()
    clock = ("hour", "minute", "second", "ahead_hour", "ahead_minute")
    hour, minute, second, ahead_hour, ahead_minute = (pl.col(part).cast(pl.Int64).fill_null(0) for part in clock)
    ahead = (ahead_hour * 3600 + ahead_minute * 60) * pl.when(pl.col("sign") == "-").then(-1).otherwise(1)
    days = pl.col("date").str.to_date("%Y-%m-%d", strict=False).cast(pl.Int32).cast(pl.Int64)
    seconds = days * DAY + hour * 3600 + minute * 60 + second - ahead
    valid = (hour < 24) & (minute < 60) & (second < 60)
    whole = parts.select(pl.when(valid).then(seconds)).to_series()
    return _Instants(whole, _billionths(parts["fraction"]), unit="s", recognised="ISO text")


def _billionths(digits: pl.Series) -> pl.Series:
    """Read the digits after a decimal point; beyond nanoseconds they are cut."""
    padded = digits.fill_null("").str.slice(0, 9).str.pad_end(9, "0")
    return padded.cast(pl.Int64)


def _as_calendar(instants: _Instants) -> _Instants:
    """Take numbers such as 20140723 for the dates that they spell; as seconds, they would all be August 1970."""
    whole = instants.whole
    low, high = whole.min(), whole.max()
    if not (isinstance(low, int) and isinstance(high, int) and low >= 1970_01_01 and high <= 2099_12_31):
        return instants
    days = whole.cast(pl.String).str.to_date("%Y%m%d", strict=False)
    if days.null_count() > whole.null_count():
        return instants
    return _Instants(days.to_physical().cast(pl.Int64) * DAY, unit="s", recognised=f"dates written as {low}")


def _in_other_units(whole: pl.Series, known: TimeUnit) -> pl.Series:
    """Mark the numbers that lie between 1980 and 2100 in a unit other than the known one."""
    column = pl.col(whole.name)
    spans = [
        (column >= MODERN * per_second) & (column < END_OF_TIME * per_second)
        for unit, per_second in PER_SECOND.items()
        if unit != known
    ]
    return whole.to_frame().select(pl.any_horizontal(spans).fill_null(False)).to_series()


def _exact(whole: pl.Series, billionths: pl.Series | None, unit: TimeUnit) -> tuple[pl.Series, TimeUnit]:
    """Join whole units and fractions in the coarsest unit that holds both."""
    if billionths is None or not (billionths.set(whole.is_null(), 0) != 0).any():
        return whole, unit
    return _coarsest(whole * (10**9 // PER_SECOND[unit]) + billionths // PER_SECOND[unit], "ns")


def _coarsest(values: pl.Series, unit: TimeUnit) -> tuple[pl.Series, TimeUnit]:
    """Express times in the coarsest unit in which all of them are whole."""
    for coarser, per_second in PER_SECOND.items():
        step = PER_SECOND[unit] // per_second
        if step > 1 and bool((values % step == 0).all()):
            return values // step, coarser
    return values, unit
