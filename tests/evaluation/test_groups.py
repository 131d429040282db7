import numpy as np
import polars as pl
import pytest
from tests.synthetic import histories_of

from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import Split, Targets, global_time, leave_one_out
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.groups import GROUPS, groups_of, length_buckets, members


@pytest.fixture(scope="module")
def split() -> Split:
    """Three users: the last event is a repeat, new, a repeat, and at the time before it or later."""
    sequences = {"u": ("abca", [1, 2, 3, 3]), "v": ("bbbc", [1, 1, 1, 2]), "w": ("cabb", [5, 6, 8, 9])}
    rows = [
        {"user": user, "item": item, "time": time}
        for user, (items, times) in sequences.items()
        for item, time in zip(items, times, strict=True)
    ]
    return leave_one_out(histories_of(pl.DataFrame(rows)))


def labels(group: object, split: Split, targets: Targets) -> list[str]:
    return groups_of(group, split, targets)[1].to_list()


def test_repeats_are_items_that_the_same_user_had_before(split: Split) -> None:
    assert labels("repeats", split, split.test) == ["repeat", "new item", "repeat"]
    assert labels("repeats", split, split.valid) == ["new item", "repeat", "new item"]


def test_targets_at_the_time_of_the_latest_event(split: Split) -> None:
    assert labels("time", split, split.test) == ["same time", "later", "later"]
    assert labels("time", split, split.valid) == ["later", "same time", "later"]


def test_rounded_times_of_recbole_may_go_back() -> None:
    log = pl.DataFrame({"user": "u", "item": [1, 2, 3], "time": [1_000_000_130, 1_000_000_128, 1_000_000_129]})
    split = leave_one_out(Histories.from_log(Log(log, "s"), ties="recbole"))
    assert split.histories.times.tolist() == [1_000_000_130, 1_000_000_128, 1_000_000_129]
    assert labels("time", split, split.test) == ["same time"]  # earlier than the latest event, later than the last


@pytest.mark.parametrize("name", GROUPS)
@pytest.mark.parametrize("part", ["valid", "test"])
def test_groups_divide_the_targets(name: str, part: str) -> None:
    rng = np.random.default_rng(0)
    user = np.sort(rng.integers(0, 20, 400))
    log = pl.DataFrame({"user": user, "item": rng.integers(0, 30, 400), "time": rng.integers(0, 90, 400)})
    histories = histories_of(log)
    for split in (leave_one_out(histories), global_time(histories)):
        targets = split.targets(part)
        grouping, groups = groups_of(name, split, targets)
        assert grouping == name
        assert np.sum(list(members(groups).values()), axis=0).tolist() == [1] * len(targets)


@pytest.mark.parametrize(
    ("average", "lengths", "names"),
    [
        (8.9, [1, 5, 6, 15, 16, 49, 50, 9999], ["1-5", "6-15", "16-49", ">=50"]),
        (165.5, [1, 30, 31, 90, 91, 200, 201, 9999], ["1-30", "31-90", "91-200", ">=201"]),
    ],
)
def test_the_papers_buckets(average: float, lengths: list[int], names: list[str]) -> None:
    found = length_buckets(np.array(lengths), average)
    assert found.to_list() == [name for name in names for _ in range(2)]
    assert list(members(found)) == names


def test_a_bucket_without_users_stays_and_a_bucket_of_one_length_has_its_name() -> None:
    found = length_buckets(np.array([9]), buckets=(1, 2, 4))
    assert {name: rows.tolist() for name, rows in members(found).items()} == {
        "1": [False],
        "2-3": [False],
        ">=4": [True],
    }


def test_lengths_outside_of_the_buckets_are_not_dropped_silently() -> None:
    with pytest.raises(DataError, match="history of 0 events in row 1, but the first bucket starts at 1"):
        length_buckets(np.array([1, 0]))
    with pytest.raises(SettingsError, match="ascending"):
        length_buckets(np.array([1, 0]), buckets=(6, 1))


def test_a_group_of_ones_own_names_its_targets(split: Split) -> None:
    def month(split: Split, targets: Targets) -> list[int]:
        return [10, 9, 10]

    grouping, groups = groups_of(month, split, split.test)
    assert (grouping, groups.to_list(), list(members(groups))) == ("month", ["10", "9", "10"], ["9", "10"])


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("lenght", "unknown group 'lenght'. Known: length, time, repeats; yours is module:function"),
        (3, "a group is a name such as 'length' or a function; found 3"),
        (lambda split, targets: ["a"], "group <lambda>: named 1 of 3 targets"),
        (lambda split, targets: ["a", None, "b"], "group <lambda>: no name for the target in row 1"),
    ],
)
def test_what_is_no_group_is_named(split: Split, group: object, message: str) -> None:
    with pytest.raises((DataError, SettingsError), match=message):
        groups_of(group, split, split.test)
