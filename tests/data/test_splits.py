from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import Split, SplitSettings, global_time, leave_one_out
from marsrec.errors import DataError, SettingsError


def histories_of(lengths: list[int], times: list[int] | None = None) -> Histories:
    users = [u for u, n in enumerate(lengths) for _ in range(n)]
    times = times or list(range(len(users)))
    return Histories.from_log(Log(pl.DataFrame({"user": users, "item": list(range(len(users))), "time": times}), "s"))


def test_leave_one_out_takes_the_last_two_events() -> None:
    split = leave_one_out(histories_of([5, 3, 2, 1]))
    assert split.train_lengths.tolist() == [3, 1, 2, 1]  # users with fewer than three events only train
    assert split.valid.users.tolist() == [0, 1]
    assert split.valid.positions.tolist() == [3, 6]
    assert split.test.positions.tolist() == [4, 7]
    assert split.average_length == pytest.approx(7 / 4)


def test_item_counts_are_those_of_training_events_alone() -> None:
    frame = pl.DataFrame({"user": [1, 1, 1, 1, 2], "item": ["a", "a", "b", "c", "c"], "time": [1, 2, 3, 4, 5]})
    split = leave_one_out(Histories.from_log(Log(frame, "s")))
    assert split.item_counts.tolist() == [0, 2, 0, 1]


def test_leave_one_out_needs_a_user_with_three_events() -> None:
    with pytest.raises(DataError, match="three events"):
        leave_one_out(histories_of([2, 2]))


def targets(split: Split) -> tuple[list[int], list[int]]:
    return split.valid.positions.tolist(), split.test.positions.tolist()


def test_global_time_by_dates_keeps_the_past_of_each_target() -> None:
    day = 86400
    histories = histories_of([4, 2, 1], times=[0, day, 2 * day, 3 * day, day, 4 * day, 5 * day])
    split = global_time(histories, "1970-01-03", "1970-01-04")
    assert split.train_lengths.tolist() == [2, 1, 0]
    # The last user's only event has no past: it cannot be predicted from anything.
    assert targets(split) == ([2], [3, 5])
    assert split.average_length == 1.5


def test_global_time_by_fractions() -> None:
    split = global_time(histories_of([10]), 0.6, 0.8)
    assert split.train_ends.tolist() == [6]
    assert targets(split) == ([6, 7], [8, 9])


def test_global_time_refuses_what_cannot_work() -> None:
    histories = histories_of([5])
    with pytest.raises(SettingsError, match="must come before"):
        global_time(histories, 0.9, 0.8)
    with pytest.raises(SettingsError, match="between 0 and 1"):
        global_time(histories, 1.0, 0.8)
    with pytest.raises(SettingsError, match="found 'soon'"):
        global_time(histories, "soon", 0.8)
    with pytest.raises(DataError, match="no test events"):
        global_time(histories, 0.5, "2040-01-01")


def test_numbers_below_one_are_shares_and_others_moments() -> None:
    histories = histories_of([10])  # at seconds 0 to 9
    for given in ((0.3, 0.8), ("0.3", "0.8"), (3, 8), ("1970-01-01T00:00:03", 8)):
        split = SplitSettings(name="global-time", valid_from=given[0], test_from=given[1]).apply(histories)
        assert targets(split) == ([3, 4, 5, 6, 7], [8, 9])
        assert targets(global_time(histories, *given)) == targets(split)


def test_shares_that_fall_on_one_instant_are_told() -> None:
    histories = replace(histories_of([10]), times=np.zeros(10, dtype=np.int64))
    with pytest.raises(SettingsError, match=r"\(0\.8, at 0 s\).*\(0\.9, at 0\).*further apart"):
        SplitSettings(name="global-time").apply(histories)


def test_settings_survive_json() -> None:
    settings = SplitSettings(name="global-time", valid_from="1970-01-01T00:00:03", test_from=0.8)
    again = SplitSettings.model_validate_json(settings.model_dump_json())
    assert (
        targets(again.apply(histories_of([10])))
        == targets(settings.apply(histories_of([10])))
        == (
            [3, 4, 5, 6, 7],
            [8, 9],
        )
    )


def test_rounded_times_do_not_go_with_exact_moments() -> None:
    histories = replace(histories_of([10]), ties="recbole")
    with pytest.raises(SettingsError, match="ties='file'"):
        SplitSettings(name="global-time").apply(histories)
