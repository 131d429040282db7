"""What callers ask with, users or histories in any library's columns, and what they get back."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl
import torch
from torch import Tensor

from marsrec.data.histories import FEW, Histories, Vocabulary, flat_rows
from marsrec.data.log import LogSettings, read_log
from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.errors import DataError, warn
from marsrec.recommender.inference import Answer

Kind = Literal["polars", "pandas", "pyarrow"]

NAMELESS = "history"
"""What the user of a history is called that was given as a list of events."""
_NAMELESS = pl.Series([NAMELESS])


def known_histories(users: Any, histories: Histories) -> Histories:
    """Histories of known users: one raw id, a list or a column of them."""
    wanted = column(users)
    if wanted.dtype.is_nested():
        raise DataError("users are ids, one or a column of them; found lists. Pass events as histories=... instead.")
    codes = histories.user_ids.encode(wanted)
    if (codes == 0).any():
        unknown = wanted.filter(pl.Series(codes == 0)).head(5).to_list()
        raise DataError(
            f"unknown user{'s' if len(unknown) > 1 else ''} {', '.join(map(repr, unknown))}: not in the log that the "
            "recommender was fitted on. Pass their events instead of their ids (histories=..., or --event)."
        )
    rows = codes.astype(np.int64) - 1
    offsets, index = flat_rows(histories.offsets[rows], histories.lengths[rows])
    items, times = histories.items[index], histories.times[index]
    own = Vocabulary(histories.user_ids.decode(codes))
    return Histories(items, times, offsets, own, histories.item_ids, histories.unit)


def given_histories(
    given: Any, item_ids: Vocabulary, unit: TimeUnit, columns: LogSettings, instant: Callable[[Any], int]
) -> Histories:
    """Histories from outside, in the codes and the unit of a model. Unknown items are skipped and counted.

    Parameters
    ----------
    given : list of (item, time), or path or dataframe
        Events of one user as pairs, or of many with users.
    item_ids, unit : Vocabulary and time unit
        Those of the model.
    columns : LogSettings
        How a file or dataframe is read.
    instant : function
        Brings a time of a pair into the model's unit.
    """
    if isinstance(given, list | tuple):
        if any(not isinstance(event, list | tuple) or len(event) != 2 for event in given):
            raise DataError("a history as a list holds pairs (item, time), such as [('tea', 1600000000)].")
        if not given:
            empty = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int64), np.zeros(2, dtype=np.int64)
            return Histories(*empty, Vocabulary(pl.Series([NAMELESS])), item_ids, unit)
        if len(given) <= FEW and all(type(item) is item_ids.kind for item, _ in given):
            return _few_events(given, item_ids, unit, instant)
        items = pl.Series("item", [item for item, _ in given], strict=False)
        times = pl.Series("time", [instant(time) for _, time in given], dtype=pl.Int64)
        frame = pl.DataFrame([items, times]).with_columns(user=pl.lit(NAMELESS))
        log = read_log(frame, LogSettings(unit=unit))
    else:
        log = read_log(given, columns)
    raw = Histories.from_log(log)
    codes = item_ids.encode(raw.item_ids.ids)[raw.items - 1]
    known = codes > 0
    if not known.all():
        names = raw.item_ids.decode(raw.items[~known]).unique(maintain_order=True).to_list()
        _skipped(int((~known).sum()), len(codes), names)
    owners = np.repeat(np.arange(raw.n_users), raw.lengths)[known]
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owners, minlength=raw.n_users))])
    have, want = PER_SECOND[raw.unit], PER_SECOND[unit]
    exact = raw.times[known]
    exact = exact * (want // have) if want >= have else exact // (have // want)
    return Histories(codes[known], exact, offsets, raw.user_ids, item_ids, unit)


def _few_events(
    given: Sequence[tuple[Any, Any]], item_ids: Vocabulary, unit: TimeUnit, instant: Callable[[Any], int]
) -> Histories:
    """A history whose ids are of the model's own kind, in order of time: no table is needed for that."""
    times = np.array([instant(time) for _, time in given], dtype=np.int64)
    order = np.argsort(times, kind="stable")
    items = [given[place][0] for place in order]
    codes = item_ids.encode(items)
    known = codes > 0
    if not known.all():
        names = dict.fromkeys(item for item, code in zip(items, codes, strict=True) if code == 0)
        _skipped(len(codes) - int(known.sum()), len(codes), list(names))
    offsets = np.array([0, known.sum()], dtype=np.int64)
    return Histories(codes[known], times[order][known], offsets, Vocabulary(_NAMELESS), item_ids, unit)


def _skipped(unknown: int, events: int, names: Sequence[Any]) -> None:
    listed = ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
    warn(f"{unknown} of {events} events have unknown items and were skipped: {listed}.")


def column(values: Any) -> pl.Series:
    """One raw id, a list or any library's column as a polars column."""
    if is_one(values):
        values = [values]
    known = nw.from_native(values, allow_series=True, pass_through=True)
    if isinstance(known, nw.DataFrame | nw.LazyFrame) or not isinstance(values, Iterable):
        raise DataError(f"ids are one column or list of them; found a {type(values).__name__}. Pick the column of ids.")
    if isinstance(known, nw.Series):
        return pl.Series(known.to_list(), strict=False)
    return pl.Series(values.tolist() if hasattr(values, "tolist") else list(values), strict=False)


def is_one(value: Any) -> bool:
    """Whether this is a single raw id."""
    return isinstance(value, str | int | float | np.generic)


def kind_of(values: Any) -> Kind | None:
    """Which library a dataframe or column comes from; None if from none."""
    if is_one(values) or isinstance(values, Path | list | tuple):
        return None
    native = nw.from_native(values, allow_series=True, pass_through=True)
    if native is values:
        return None
    implementation = native.implementation
    if implementation.is_pandas_like():
        return "pandas"
    return "pyarrow" if implementation.is_pyarrow() else "polars"


def as_kind(table: pl.DataFrame, kind: Kind) -> Any:
    """A table as a dataframe of a library."""
    return table if kind == "polars" else table.to_pandas() if kind == "pandas" else table.to_arrow()


def items_of(ids: Any, item_ids: Vocabulary, name: str) -> Tensor:
    """Codes of raw ids; unknown ones are skipped and counted, and at least one has to be known."""
    codes = item_ids.encode(column(ids))
    if not (codes > 0).any():
        raise DataError(f"{name}: none of the {len(codes)} ids is an item of the log.")
    if unknown := int((codes == 0).sum()):
        warn(f"{unknown} of {len(codes)} {name} are unknown items and were skipped.")
    return torch.from_numpy(np.unique(codes[codes > 0]).astype(np.int64))


def item_of(item: Any, item_ids: Vocabulary) -> int:
    """Code of one raw id."""
    code = int(item_ids.encode([item])[0])
    if code == 0:
        raise DataError(f"unknown item {item!r}: not in the log that the recommender was fitted on.")
    return code


def answered(users: pl.Series, answers: Sequence[Answer], item_ids: Vocabulary) -> pl.DataFrame:
    """Answers as a table, a row per item."""
    if len(answers) == 1:
        (answer,) = answers
        count, codes, scores = len(answer.codes), answer.codes, answer.scores
        asked, sources = users.new_from_index(0, count), pl.Series([answer.source]).new_from_index(0, count)
        rank = np.arange(1, count + 1)
    else:
        counts = np.array([len(answer.codes) for answer in answers], dtype=np.int64)
        codes = np.concatenate([*(answer.codes for answer in answers), np.zeros(0, np.int64)])
        scores = np.concatenate([*(answer.scores for answer in answers), np.zeros(0, np.float32)])
        rows = np.repeat(np.arange(len(answers)), counts)
        asked, sources = (
            users.gather(rows),
            pl.Series([answer.source for answer in answers], dtype=pl.String).gather(rows),
        )
        rank = 1 + np.arange(len(rows)) - np.repeat(counts.cumsum() - counts, counts)
    columns = {"user": asked, "rank": pl.Series(rank), "item": item_ids.decode(codes), "score": pl.Series(scores)}
    return pl.DataFrame([column.alias(name) for name, column in [*columns.items(), ("source", sources)]])
