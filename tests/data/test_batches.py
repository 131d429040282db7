import numpy as np
import polars as pl
import pytest

from marsrec.data.batches import Batch, Batches, contexts, gather, prefixes, same_target, windows
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import Split, leave_one_out

LENGTHS = [40, 3, 7, 1, 12, 4, 25]


@pytest.fixture
def split() -> Split:
    """Item and time tell the place of an event: user 2's fifth event is item 2005 at time 200500."""
    rows = [(u, 1000 * u + i, 100 * (1000 * u + i)) for u, n in enumerate(LENGTHS) for i in range(n)]
    return leave_one_out(
        Histories.from_log(Log(pl.DataFrame(rows, schema=["user", "item", "time"], orient="row"), "s"))
    )


def pairs(split: Split, batch: Batch) -> list[tuple[tuple[int, ...], int]]:
    """Every (past, next item) pair that a batch trains, in raw ids."""
    decode = split.histories.item_ids.decode
    found = []
    for b, length in enumerate(batch.lengths.tolist()):
        items = decode(batch.items[b].numpy()).to_list()
        goals = decode(batch.targets[b].numpy()).to_list()
        found += [(tuple(items[: i + 1]), goals[i]) for i in range(length) if goals[i] is not None]
        assert items[length:] == [None] * (len(items) - length)
        assert goals[length:] == [None] * (len(goals) - length)
        assert batch.times[b, :length].tolist() == [100 * item for item in items[:length]]
        assert all(batch.target_times[b, i] == 100 * goal for i, goal in enumerate(goals) if goal is not None)
    return found


def all_targets(split: Split) -> list[int]:
    return sorted(1000 * u + i for u, n in enumerate(LENGTHS) for i in range(1, n - 2 if n >= 3 else n))


def test_short_histories_give_the_same_pairs_as_windows_and_as_prefixes(split: Split) -> None:
    generator = np.random.default_rng(0)
    in_windows = pairs(split, gather(split.histories, windows(split, 50, 25, generator)))
    in_prefixes = pairs(split, gather(split.histories, prefixes(split, 50)))
    assert sorted(in_windows) == sorted(in_prefixes)
    assert sorted(goal for _, goal in in_windows) == all_targets(split)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("length", "stride"), [(8, 4), (5, 1), (3, 2), (2, 1), (1, 1)])
def test_every_event_is_a_target_once_and_no_context_is_starved(
    split: Split, length: int, stride: int, seed: int
) -> None:
    rows = windows(split, length, stride, np.random.default_rng(seed))
    found = pairs(split, gather(split.histories, rows))
    assert sorted(goal for _, goal in found) == all_targets(split)
    for past, goal in found:
        available = goal % 1000
        assert past == tuple(range(goal - len(past), goal))
        assert len(past) > min(available, length) - stride
        assert len(past) <= length


def test_prefixes_keep_the_latest_events(split: Split) -> None:
    found = pairs(split, gather(split.histories, prefixes(split, 4)))
    assert all(past == tuple(range(goal - min(4, goal % 1000), goal)) for past, goal in found)


def test_contexts_of_test_targets_include_the_validation_event(split: Split) -> None:
    batch = gather(split.histories, contexts(split.histories, split.test, 3))
    goals = [1000 * u + n - 1 for u, n in enumerate(LENGTHS) if n >= 3]
    assert pairs(split, batch) == [(tuple(range(goal - min(3, goal % 1000), goal)), goal) for goal in goals]


def test_batches_hold_about_the_budget_and_every_row_once(split: Split) -> None:
    rows = windows(split, 8, 4, np.random.default_rng(0))
    batches = Batches(split.histories, rows, budget=16, generator=np.random.default_rng(1), pool=2)
    assert sorted(np.concatenate(batches.batches).tolist()) == list(range(len(rows)))
    counts = [int((batches[i].targets > 0).sum()) for i in range(len(batches))]
    assert sum(counts) == len(all_targets(split))
    assert max(counts) < 16 + 8  # a row that crosses the budget comes along whole


def test_batches_depend_on_the_generator_alone(split: Split) -> None:
    rows = windows(split, 8, 4, np.random.default_rng(0))
    first, same, other = (
        [b.tolist() for b in Batches(split.histories, rows, 16, generator=np.random.default_rng(seed)).batches]
        for seed in (1, 1, 2)
    )
    assert first == same
    assert first != other


def test_rows_of_similar_length_share_a_batch(split: Split) -> None:
    rows = contexts(split.histories, split.test, 50)
    batches = Batches(split.histories, rows, budget=30, count="positions")
    lengths = [batches[i].lengths.tolist() for i in range(len(batches))]
    flat = [n for batch in lengths for n in batch]
    assert flat == sorted(flat)
    assert len(lengths) > 1


def test_twins_have_the_same_target_and_are_others_where_there_are_any() -> None:
    items = ["a", "b", "c", "b", "d", "x", "c", "b", "e", "x", "y", "e", "f", "c", "x", "y"]
    users = [0] * 6 + [1] * 5 + [2] * 5
    frame = pl.DataFrame({"user": users, "item": items, "time": list(range(len(items)))})
    split = leave_one_out(Histories.from_log(Log(frame, "s")))
    rows = prefixes(split, 50)
    goals = split.histories.items[rows[:, 2]]
    counts = {goal: int((goals == goal).sum()) for goal in goals.tolist()}
    assert sorted(counts.values()) == [1, 1, 2, 3]
    met: dict[int, set[int]] = {}
    for seed in range(40):
        twins = same_target(split.histories, rows, np.random.default_rng(seed))
        assert (split.histories.items[twins[:, 2]] == goals).all()
        for own, other, goal in zip(rows[:, 2].tolist(), twins[:, 2].tolist(), goals.tolist(), strict=True):
            assert (own == other) == (counts[goal] == 1)
            met.setdefault(own, set()).add(other)
    assert all(len(others) == max(1, counts[goal] - 1) for others, goal in zip(met.values(), goals, strict=True))


def test_twins_come_along_with_their_rows_and_move_with_them(split: Split) -> None:
    rows = prefixes(split, 5)
    twins = rows[::-1].copy()
    batches = Batches(split.histories, rows, budget=16, generator=np.random.default_rng(0), twins=twins)
    batch = batches[0].to("cpu")
    assert batch.twins is not None
    expected = split.histories.items[twins[batches.batches[0]][:, 2]]
    assert batch.twins.targets.gather(1, batch.twins.last[:, None])[:, 0].tolist() == expected.tolist()
    part = batch[slice(2, 5)]
    longest = int(batch.lengths[2:5].max())
    assert part.items.tolist() == batch.items[2:5, :longest].tolist()
    shortest = batch[batch.lengths.argmin()[None]]
    assert shortest.items.shape == shortest.target_times.shape == (1, int(batch.lengths.min()))
    assert shortest.items.all()
    assert part.twins is not None
    assert part.twins.lengths.tolist() == batch.twins.lengths[2:5].tolist()


def test_a_stack_holds_the_rows_of_all_as_they_were(split: Split) -> None:
    parts = [gather(split.histories, rows) for rows in np.split(prefixes(split, 9), [3, 20])]
    stacked = Batch.stack(*parts)
    alone = [row for part in parts for row in (part[slice(i, i + 1)] for i in range(len(part.lengths)))]
    assert len(stacked.lengths) == len(alone) == len(prefixes(split, 9))
    assert len({part.items.shape[1] for part in parts}) > 1
    for i, row in enumerate(alone):
        again = stacked[slice(i, i + 1)]
        for name in ("items", "times", "lengths", "targets", "target_times"):
            assert getattr(again, name).tolist() == getattr(row, name).tolist()
    outside = ~stacked.inside
    assert not stacked.items[outside].any()
    assert not stacked.targets[outside].any()
    assert (stacked.times.diff(dim=1)[outside[:, 1:]] == 0).all()
