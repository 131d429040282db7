"""All positions in one pass, or a prefix at a time: the same pairs, the same loss."""

import numpy as np
import polars as pl
import pytest
import torch
import torch.nn.functional as F
from tests.synthetic import cyclic_log, histories_of

from marsrec.data.batches import Batch, gather, prefixes, windows
from marsrec.data.splits import leave_one_out
from marsrec.models import model_settings
from marsrec.nn.kernels.linear_cross_entropy import NegativeSampler
from marsrec.nn.objectives.base import Softmax
from marsrec.nn.objectives.next_item import NextItemSettings

OBJECTIVE = NextItemSettings()
SPLIT = leave_one_out(histories_of(cyclic_log(users=9, events=9, items=7)))


@pytest.mark.parametrize("clock", ["last-event", "request"])
@pytest.mark.parametrize("name", ["mars-t", "mars-m"])
def test_both_clocks_give_the_same_loss_at_all_positions_and_by_prefixes(name: str, clock: str) -> None:
    torch.manual_seed(0)
    given = {"encoder.dropout": 0.0, "dim": 8, "length": 10, "readout.dropout": 0.0, "readout.diversity": 0.0}
    model = model_settings(name, options={**given, "readout.clock": clock}).build(7).double().train()
    one_pass = OBJECTIVE.losses(model, gather(SPLIT.histories, windows(SPLIT, 10, 5, np.random.default_rng(0))))
    one_by_one = gather(SPLIT.histories, prefixes(SPLIT, 10))
    output = model(one_by_one)
    wanted = one_by_one.targets.gather(1, one_by_one.last[:, None])[:, 0]
    expected = F.cross_entropy(model.score(output.users)[:, 1:], wanted - 1)
    torch.testing.assert_close(one_pass["cross_entropy"], expected, rtol=1e-9, atol=1e-9)
    for loss, value in output.losses.items():
        torch.testing.assert_close(one_pass[loss], value, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("readout", ["last", "mars"])
def test_windows_that_overlap_are_read_out_only_where_they_have_targets(readout: str) -> None:
    """The user vector at each target is the one at the end of the row that stops there."""
    torch.manual_seed(0)
    model = model_settings("sasrec", readout=readout, options={"dim": 8, "length": 4}).build(7).double().eval()
    rows = windows(SPLIT, 4, 2, np.random.default_rng(0))
    rows = rows[rows[:, 2] > rows[:, 0] + 1]  # the later rows, whose first positions have no target
    at_targets = model(gather(SPLIT.histories, rows), at_targets=True).users
    ends = [(start, goal, goal) for start, end, first in rows for goal in range(first, end + 1)]
    expected = torch.cat([model(gather(SPLIT.histories, np.array([row]))).users for row in ends])
    torch.testing.assert_close(at_targets, expected)


def test_diversity_of_one_position_per_row_is_unbiased() -> None:
    torch.manual_seed(0)
    given = {"encoder.dropout": 0.0, "readout.dropout": 0.0, "dim": 8, "length": 10, "readout.diversity": 1.0}
    model = model_settings("mars-t", options=given).build(7).train()
    # Histories of different lengths: rows with more targets have to count for more.
    frame = cyclic_log(users=4, events=9, items=7)
    frame = frame.filter((pl.col("user") != "u1") | (pl.col("time").rank().over("user") <= 4))
    split = leave_one_out(histories_of(frame))
    batch = gather(split.histories, windows(split, 10, 5, np.random.default_rng(0)))
    many = Batch.stack(*[batch] * 30)  # each copy of a row draws its own position
    estimates = torch.stack([OBJECTIVE.losses(model, many)["diversity"].detach() for _ in range(100)])
    exact = model(gather(split.histories, prefixes(split, 10))).losses["diversity"]
    standard_error = estimates.std() / len(estimates) ** 0.5
    assert abs(estimates.mean() - exact.item()) < 4 * standard_error


def test_sampled_softmax_over_every_item_is_the_full_softmax() -> None:
    torch.manual_seed(0)
    model = model_settings("sasrec", options={"dim": 8, "length": 10}).build(7).eval()
    batch = gather(SPLIT.histories, windows(SPLIT, 10, 5, np.random.default_rng(0)))

    class Everything(NegativeSampler):
        def draw(self, size: int, generator: torch.Generator | None = None) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.arange(7), torch.zeros(7)

    full = OBJECTIVE.losses(model, batch)["cross_entropy"]
    sampled = OBJECTIVE.losses(model, batch, Softmax(Everything(torch.ones(7)), 7))["cross_entropy"]
    torch.testing.assert_close(sampled, full)
