import os
from pathlib import Path

import polars as pl
import pytest

from marsrec.data.filters import filter_counts
from marsrec.data.log import Log, read_log
from marsrec.errors import DataError, SettingsError


def log(*pairs: str) -> Log:
    users, items = zip(*pairs, strict=True)
    return Log(pl.DataFrame({"user": users, "item": items, "time": range(len(pairs))}), "s", ("read",), "log.csv")


def pairs(log: Log) -> list[str]:
    return [user + item for user, item, _ in log.frame.rows()]


def test_core_is_reached_over_several_rounds_in_file_order() -> None:
    # d goes first, then item z has one row left, then c, and {a, b} × {x, y} stays.
    chain = log("by", "cz", "ax", "dz", "cy", "bx", "ay")
    core = filter_counts(chain, users=(2, None), items=(2, None))
    assert pairs(core) == ["by", "ax", "bx", "ay"]
    assert core.notes == (
        "read",
        "counts in [2, inf) per user and [2, inf) per item: removed 2 users, 1 item and 3 rows in 3 rounds",
    )
    assert (core.unit, core.source) == ("s", "log.csv")


def test_upper_bound_is_exclusive_and_counted_before_items_go() -> None:
    # a has 3 rows, one with the rare item z: both are judged in the same round, so a goes although 2 rows remain.
    data = log("ax", "ay", "az", "bx", "by", "cx", "cy")
    kept = filter_counts(data, users=(1, 3), items=(2, None))
    assert pairs(kept) == ["bx", "by", "cx", "cy"]
    assert pairs(filter_counts(data, users=(1, 4), items=(2, None))) == ["ax", "ay", "bx", "by", "cx", "cy"]


def test_nothing_to_remove_is_noted_too() -> None:
    data = log("ax", "by")
    kept = filter_counts(data)
    assert pairs(kept) == ["ax", "by"]
    assert kept.notes[-1].endswith("removed 0 users, 0 items and 0 rows in 0 rounds")


def test_nothing_left_is_an_error() -> None:
    with pytest.raises(DataError, match=r"log\.csv: nothing is left with counts in \[3, inf\) per user.*Widen"):
        filter_counts(log("ax", "ay", "bx"), (3, None), (3, None))


@pytest.mark.parametrize("bounds", [(5, 5), (5, 2), (-1, None), (0, 1)])
def test_impossible_bounds(bounds: tuple[int, int | None]) -> None:
    with pytest.raises(SettingsError, match=r"items: no count lies in"):
        filter_counts(log("ax"), items=bounds)


@pytest.mark.skipif("MARSREC_DATA" not in os.environ, reason="MARSREC_DATA names no folder with ml-1m_raw.parquet")
def test_movielens_five_core() -> None:
    everything = read_log(Path(os.environ["MARSREC_DATA"]) / "ml-1m_raw.parquet")
    core = filter_counts(everything, (5, None), (5, None))
    assert (core.n_users, core.n_items, len(core)) == (6_040, 3_416, 999_611)
