"""The operator that we ship against its equations, computed event by event, and on data whose law is known."""

import math

import numpy as np
import polars as pl
import pytest
import torch
from torch import Tensor

from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.splits import leave_one_out
from marsrec.models import model_settings
from marsrec.nn.hawkes import Hawkes
from marsrec.nn.kernels.decayed_average import decayed_average_and_total
from marsrec.training.fit import _gaps, fit
from marsrec.training.settings import TrainingSettings

HOUR = 3600
DAY = 24 * HOUR


def operator(heads: int = 3, dim: int = 6) -> Hawkes:
    torch.manual_seed(0)
    made = Hawkes(dim, heads).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def users(length: int = 7, dim: int = 6) -> tuple[Tensor, Tensor, Tensor]:
    """States, embedded items and times of two users."""
    torch.manual_seed(1)
    times = torch.randint(0, 20 * DAY, (2, length)).sort(dim=1).values
    return torch.randn(2, length, dim).double(), torch.randn(2, length, dim).double(), times


def by_hand(op: Hawkes, state: Tensor, items: Tensor, times: Tensor, now: int) -> tuple[Tensor, list[float]]:
    """User vector and α of one user, event by event."""
    lives = op.half_lives().tolist()
    decays = [[2 ** (-(now - int(t)) / HOUR / life) for t in times] for life in lives]
    evidence = [sum(row) for row in decays]
    context = op.context(torch.cat([state, torch.tensor([math.log(1 + s) for s in evidence], dtype=torch.float64)]))
    change, gate = context[: op.dim], context[op.dim :]
    odds = [1.0] + [math.exp(float((op.strengths[k] + gate[k]).detach())) * evidence[k] for k in range(len(lives))]
    alive = [odd / sum(odds) for odd in odds]
    vector = alive[0] * (state + change + op.taste(items.mean(0)) + op.offsets[0])
    for k, row in enumerate(decays):
        average = sum((w / evidence[k] * item for w, item in zip(row, items, strict=True)), torch.zeros(op.dim))
        vector = vector + alive[1 + k] * (op.effects(average) + op.offsets[1 + k])
    return vector, alive


def test_every_position_is_what_the_equations_say() -> None:
    op, (states, items, times) = operator(), users()
    now = times + 5 * HOUR
    reading = op(states, items, times, now=now[:, 2:], first=2)
    for user in range(2):
        for place, q in enumerate(range(2, 7)):
            seen = slice(q + 1)
            vector, alive = by_hand(op, states[user, q], items[user, seen], times[user, seen], int(now[user, q]))
            torch.testing.assert_close(reading.users[user, place], vector)
            np.testing.assert_allclose(reading.alive[user, place].tolist(), alive, rtol=1e-9)


def test_sums_that_decay_recall_the_same() -> None:
    op, (states, items, times) = operator(), users()
    past = op.start(torch.zeros(2, 6).double())
    for piece in (slice(0, 1), slice(1, 1), slice(1, 5), slice(5, 7)):
        past = op.extend(past, items[:, piece], times[:, piece])
    now = times[:, -1] + 3 * DAY
    whole = op(states, items, times, now=now[:, None], first=6)
    torch.testing.assert_close(op.recall(past, states[:, -1], now).users, whole.users[:, 0])


def test_a_past_that_is_long_dead_leaves_the_background() -> None:
    op, (states, items, times) = Hawkes(6, 3).double(), users()
    op.spread(0.1, 10.0)
    for now in (times[:, -1] + 200 * 365 * DAY, times[:, -1] + 100 * DAY):
        reading = op(states, items, times, now=now[:, None], first=6)
        assert reading.users.isfinite().all()
        torch.testing.assert_close(reading.alive[..., 0], torch.ones(2, 1).double())
        reading.users.sum().backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in op.parameters())


@pytest.mark.parametrize("scale", ["log", "linear"])
def test_the_kernel_gives_totals_and_their_gradients(scale: str) -> None:
    found = []
    for implementation in ("auto", "reference"):
        torch.manual_seed(2)
        states, rates = torch.randn(3, 40, 8, requires_grad=True), (0.3 * torch.rand(3, 35, 4)).requires_grad_()
        times = torch.randint(0, 100 * HOUR, (3, 40)).sort(dim=1).values
        now = times[:, 5:] + torch.randint(0, 9 * HOUR, (3, 35))
        averages, totals = decayed_average_and_total(
            states, times, now, rates, first=5, time_scale=scale, implementation=implementation
        )
        ((averages * torch.randn_like(averages)).sum() + (totals * torch.randn_like(totals)).sum()).backward()
        found.append((averages, totals, states.grad, rates.grad))
    for mine, reference in zip(*found, strict=True):
        torch.testing.assert_close(mine, reference, rtol=1e-4, atol=1e-4)


def test_times_that_go_back_count_as_the_latest_before_them_in_all_forms() -> None:
    op, (states, items, times) = operator(), users()
    times[:, 3] -= 2 * DAY
    past = op.extend(op.start(torch.zeros(2, 6).double()), items, times)
    now = times[:, -1] + HOUR
    folded = op.recall(past, states[:, -1], now).users
    weights, evidence = op.weigh(times, now, torch.tensor([7, 7]), checked=False)
    whole = op(states, items, times, now=now[:, None], first=6, checked=False)
    torch.testing.assert_close(folded, whole.users[:, 0])
    torch.testing.assert_close(folded, op.fuse(weights @ items, evidence, states[:, -1]).users)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_has_room_for_years(kind: torch.dtype) -> None:
    op, (states, items, times) = operator().float(), users()
    states, items, times = states.float(), items.float(), times * 100
    whole = op(states, items, times, now=times[:, -1:] + DAY, first=6).users[:, 0]
    half, past = op.to(kind), op.to(kind).start(torch.zeros(2, 6, dtype=kind))
    seen = half(states.to(kind), items.to(kind), times, now=times[:, -1:] + DAY, first=6).users[:, 0]
    past = half.extend(past, items.to(kind), times)
    folded = half.recall(past, states[:, -1].to(kind), times[:, -1] + DAY).users
    for found in (seen, folded):
        assert found.dtype == kind
        torch.testing.assert_close(found.float(), whole, rtol=0.05, atol=0.05)


def test_half_lives_of_equal_gaps_start_apart_and_can_leave_a_bound() -> None:
    op = Hawkes(6, 4)
    op.spread(24.0, 24.0)
    lives = op.half_lives()
    assert (lives[1:] / lives[:-1] > 2).all()
    op.spread(1e-9, 1e-9)
    op.half_lives().log().sum().backward()
    assert (op.raw_half_lives.grad != 0).all()


def test_half_lives_start_where_the_gaps_are() -> None:
    readout = model_settings("hawkes-t", options={"readout.heads": 3}).build(9).readout
    readout.begin(torch.tensor([1.0] * 10 + [10.0] * 80 + [100.0] * 10))
    torch.testing.assert_close(readout.operator.half_lives(), torch.tensor([1.0, 10.0, 100.0]))
    readout.begin(torch.zeros(0))  # all events at one time
    torch.testing.assert_close(readout.operator.half_lives(), torch.tensor([1.0, 10.0, 100.0]))


def test_gaps_are_those_of_training_in_hours() -> None:
    rows = [("u", 0), ("u", 3_600_000), ("u", 3_600_000), ("u", 10_800_000), ("u", 10**10), ("u", 2 * 10**10)]
    rows += [("v", 10**9), ("v", 10**9 + 1_800_000), ("v", 10**11), ("v", 10**12)]
    frame = pl.DataFrame(rows, schema=["user", "time"], orient="row").with_columns(item=pl.int_range(pl.len()))
    assert _gaps(leave_one_out(Histories.from_log(Log(frame, "ms")))).tolist() == [1.0, 2.0, 0.5]


def test_the_time_scales_of_a_known_law_are_found() -> None:
    """Two in three events are set off by an earlier one, half of them within half an hour or so, the others in days."""
    log, _ = hawkes(HawkesSettings(users=400, items=40, tastes=4, half_lives=(0.5, 96.0), weights=(0.5, 0.5)))
    model = model_settings(
        "hawkes-t",
        options={
            "dim": 32,
            "length": 30,
            "readout.heads": 2,
            "readout.clock": "request",
            "encoder.dropout": 0.2,
            "item_std": 0.1,
        },
    )
    training = TrainingSettings(epochs=6, learning_rate=1e-2, targets_per_batch=256, schedule="cosine")
    fitted = fit(leave_one_out(Histories.from_log(log)), model, training, progress=False)
    short, long = fitted.model.readout.operator.half_lives().tolist()
    assert 0.25 < short < 1.0
    assert 48 < long < 192
