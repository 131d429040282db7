"""Rankings that need no training, against the same rankings written row by row."""

import numpy as np
import polars as pl
from numpy.typing import NDArray
from tests.synthetic import histories_of

from marsrec.data.splits import Split, leave_one_out
from marsrec.evaluation.measures import figures, measures
from marsrec.evaluation.yardsticks import FADING, yardsticks


def random_split(items: int = 12) -> Split:
    rng = np.random.default_rng(0)
    users = np.repeat(np.arange(60), rng.integers(3, 15, 60))
    log = pl.DataFrame({"user": users, "item": rng.integers(items, size=len(users)) ** 2 // items, "time": users * 0})
    return leave_one_out(histories_of(log))


def scores(split: Split, target: int, follow: bool, own: bool) -> NDArray[np.float64]:
    """Of all items for one test target, as whole rows."""
    histories, place = split.histories, split.test.positions[target]
    begin = histories.offsets[split.test.users[target]]
    counts = split.item_counts
    found = counts / (counts.max() + 1)
    pairs = np.zeros((len(counts), len(counts)))
    for start, end in zip(histories.offsets[:-1], split.train_ends, strict=True):
        np.add.at(pairs, (histories.items[start : end - 1], histories.items[start + 1 : end]), 1)
    if follow:
        found += pairs[histories.items[place - 1]]
    if own:
        for event in range(begin, place):
            found[histories.items[event]] += (2 + pairs.max()) * (1 + FADING ** (place - 1 - event))
    return found


def test_ranks_are_those_of_whole_rows() -> None:
    split = random_split()
    rankings = {"popularity": (False, False), "what followed": (True, False), "own items": (True, True)}
    found = yardsticks(split)
    for name, which in rankings.items():
        ranks = []
        for target, place in enumerate(split.test.positions):
            row = scores(split, target, *which)
            score = row[split.histories.items[place]]
            ranks.append(((row[1:] > score).sum() + (row[1:] >= score).sum() + 1) / 2)
        assert found[name] == figures(measures(), np.array(ranks)), name


def test_who_takes_what_they_took_is_known_by_their_own_items() -> None:
    log = pl.DataFrame(
        {"user": [u for u in range(20) for _ in range(6)], "item": [u for u in range(20) for _ in range(6)]}
    )
    found = yardsticks(leave_one_out(histories_of(log.with_columns(time=pl.int_range(pl.len())))), "valid")
    assert found["own items"]["HR@5"] == 1.0
    assert found["popularity"]["HR@5"] < 0.5
