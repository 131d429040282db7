"""Moments and durations as people write them."""

import math
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, Literal

import numpy as np

from marsrec.data.times import END_OF_TIME, MODERN, PER_SECOND, UNIT_NAMES, TimeUnit
from marsrec.errors import SettingsError

Moment = float | str | date | datetime
"""A number since 1970 (what is finer than the log's unit is cut off), a date (ISO text, date or datetime; UTC unless it
says otherwise), or "now"."""

_STEPS = [(365.25 * 86400, "year"), (86400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second")]


def instant(moment: Any, unit: TimeUnit, log_end: int = 0) -> int:
    """A moment (see `Moment`) as an integer time in `unit`.

    Parameters
    ----------
    moment : float, str, date or datetime
        A number is in `unit`, unless it lies between 1980 and 2100 only in another one, as `time.time()` does for a
        log of milliseconds.
    unit : time unit
        In which the log is kept.
    log_end : int
        Its latest time. If that is before 1980, times count from something else than 1970, and numbers are in `unit`.

    Examples
    --------
    >>> instant("2020-01-01", "s"), instant(datetime(2020, 1, 1, tzinfo=UTC), "ms"), instant("17.9", "s")
    (1577836800, 1577836800000, 17)
    >>> instant(1_600_000_000.25, "ms", log_end=1_700_000_000_000)
    1600000000250
    """
    if isinstance(moment, np.datetime64):
        moment = moment.astype("datetime64[us]").item()
    if isinstance(moment, str) and moment.strip() == "now":
        moment = datetime.now(UTC)
    if isinstance(moment, str) and re.fullmatch(r"-?\d{1,30}(\.\d{0,30})?", moment.strip()):
        value = _number(Decimal(moment.strip()), unit, log_end)  # a float would not hold nanoseconds
    elif isinstance(moment, int | float | np.integer | np.floating) and not isinstance(moment, bool):
        value = _number(Decimal(str(moment)), unit, log_end)
    else:
        value = _date(moment, unit)
    if not 0 <= value < END_OF_TIME * PER_SECOND[unit]:
        raise SettingsError(
            f"{moment} is before 1970 or after 2100 in the log's unit, {unit}. Give it in {unit}, or as a date."
        )
    return value


def _number(number: Decimal, unit: TimeUnit, log_end: int) -> int:
    if not number.is_finite():
        return -1
    if log_end < MODERN * PER_SECOND[unit]:
        return math.floor(number)
    if 1970_01_01 <= number < 2100_01_01 and (spelled := _spelled_date(math.floor(number))):
        since = f"a number of {UNIT_NAMES[unit]} since 1970"
        raise SettingsError(f"{number} is {since}, and looks like a date. Write it as {spelled}.")
    meant = next((u for u, p in PER_SECOND.items() if MODERN * p <= number < END_OF_TIME * p), unit)
    return math.floor(number * PER_SECOND[unit] / PER_SECOND[meant])


def _spelled_date(digits: int) -> str | None:
    try:
        return datetime.strptime(str(digits), "%Y%m%d").date().isoformat()
    except ValueError:
        return None


def _date(moment: Any, unit: TimeUnit) -> int:
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise SettingsError(
                f"a moment is a number, an ISO date such as 2014-03-01T12:00, or now; found {moment!r}."
            ) from None
    if not isinstance(moment, date) or moment != moment:  # pandas' NaT is a datetime, and no moment
        raise SettingsError(f"a moment is a number, a date, ISO text or 'now'; found {moment!r}.")
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    ticks = PER_SECOND[unit]
    return int(moment.replace(microsecond=0).timestamp()) * ticks + int(moment.microsecond) * ticks // 1_000_000


AgeUnit = Literal["hours", "events"]
"""What ages are measured in: events where a model does not see real time."""


ENDLESS = "endless"
"""The half-life, in words, of what never fades."""


def age_seconds(age: float, unit: AgeUnit) -> float | None:
    """An age or a half-life in seconds; None if it is counted in events or has no end.

    Examples
    --------
    >>> age_seconds(1.5, "hours"), age_seconds(1.5, "events"), age_seconds(math.inf, "hours")
    (5400.0, None, None)
    """
    return 3600 * age if unit == "hours" and math.isfinite(age) else None


def spell_age(age: float, unit: AgeUnit) -> str:
    """An age or a half-life in words.

    Examples
    --------
    >>> spell_age(1.5, "hours"), spell_age(1.51, "events"), spell_age(1, "events"), spell_age(math.inf, "hours")
    ('1.5 hours', '1.5 events', '1 event', 'endless')
    """
    if math.isinf(age):
        return ENDLESS
    if unit == "hours":
        return spell_duration(3600 * age)
    if age > 10_000:
        return "over 10,000 events"
    count = float(f"{age:.2g}")
    return f"{count:g} event{'' if count == 1 else 's'}"


def spell_duration(seconds: float) -> str:
    """A duration in words, to two digits.

    Examples
    --------
    >>> spell_duration(0), spell_duration(95), spell_duration(5400), spell_duration(86400 * 12.3)
    ('0 seconds', '1.6 minutes', '1.5 hours', '12 days')
    """
    for size, name in _STEPS:
        if seconds >= size or size == 1.0:
            count = seconds / size
            text = f"{count:.1f}".removesuffix(".0") if count < 9.95 else f"{count:.0f}"
            if name == "year" and count > 100:
                return "over 100 years"
            return f"{text} {name}{'' if text == '1' else 's'}"
    raise AssertionError("unreachable")
