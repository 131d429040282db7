"""Which targets of an evaluation are repeats."""

import polars as pl
from tests.synthetic import histories_of

from marsrec.data.splits import leave_one_out
from marsrec.evaluation.evaluate import repeated


def test_repeats_are_items_that_the_same_user_had_before() -> None:
    sequences = {"u": "abca", "v": "bbbc", "w": "cabb"}  # the last is a repeat, new, a repeat
    log = pl.DataFrame(
        [{"user": u, "item": i, "time": t} for u, items in sequences.items() for t, i in enumerate(items)]
    )
    split = leave_one_out(histories_of(log))
    assert repeated(split.histories, split.test).tolist() == [True, False, True]
    assert repeated(split.histories, split.valid).tolist() == [False, True, False]
