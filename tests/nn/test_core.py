"""CORE's readout against its equations, written out one position at a time."""

import math

import pytest
import torch
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.core import Core, CoreSettings
from marsrec.nn.scorers import CosineSettings

DIM, WIDTH = 4, 6
LENGTHS = [5, 1, 3]


def small() -> Core:
    torch.manual_seed(0)
    return CoreSettings().build(DIM, WIDTH, 3600.0).double()


def rows(width: int = 5) -> tuple[Tensor, Tensor, Batch]:
    """States, embedded items and a batch; states at padding are not zero."""
    torch.manual_seed(1)
    states = 3 * torch.randn(3, 5, WIDTH, dtype=torch.float64)
    embedded = torch.randn(3, 5, DIM, dtype=torch.float64)
    zeros = torch.zeros(3, width, dtype=torch.long)
    batch = Batch(zeros, zeros, torch.tensor(LENGTHS), zeros, zeros)
    extra = (0, 0, 0, width - 5)
    states = torch.nn.functional.pad(states, extra, value=7.0)
    return states, torch.nn.functional.pad(embedded, extra) * batch.inside[..., None], batch


def with_targets(batch: Batch, first: int = 0) -> Batch:
    targets = (batch.inside & (torch.arange(batch.items.shape[1]) >= first)).long()
    return Batch(batch.items, batch.times, batch.lengths, targets, batch.target_times)


def naive(readout: Core, states: Tensor, embedded: Tensor) -> Tensor:
    """(t, width) states and (t, d) items up to a position -> (d,)."""
    weights = [math.exp((readout.logit.weight[0] @ state + readout.logit.bias[0]).item()) for state in states]
    return sum(weight * item for weight, item in zip(weights, embedded, strict=True)) / sum(weights)


@pytest.mark.parametrize("width", [5, 9])
@torch.no_grad()
def test_user_vectors_at_the_end_equal_their_equations(width: int) -> None:
    readout = small()
    states, embedded, batch = rows(width)
    expected = [naive(readout, s[:n], x[:n]) for s, x, n in zip(states, embedded, LENGTHS, strict=True)]
    users = readout(states, embedded, batch, at_targets=False).users
    torch.testing.assert_close(users, torch.stack(expected), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("width", [5, 9])
@torch.no_grad()
def test_user_vectors_at_targets_equal_their_equations(width: int, first: int) -> None:
    readout = small()
    states, embedded, batch = rows(width)
    expected = [
        naive(readout, s[: t + 1], x[: t + 1])
        for s, x, n in zip(states, embedded, LENGTHS, strict=True)
        for t in range(first, n)
    ]
    users = readout(states, embedded, with_targets(batch, first), at_targets=True).users
    torch.testing.assert_close(users, torch.stack(expected), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_later_state_that_dwarfs_all_others_leaves_earlier_positions_alone() -> None:
    readout = small()
    states, embedded, batch = rows()
    before = readout(states, embedded, with_targets(batch), at_targets=True).users
    states[0, 4] += 1e4 * readout.logit.weight[0]
    after = readout(states, embedded, with_targets(batch), at_targets=True).users
    torch.testing.assert_close(after[:4], before[:4], rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(after[4], embedded[0, 4], rtol=1e-9, atol=1e-9)


def test_gradients_reach_states_items_and_parameters() -> None:
    readout = small()
    states, embedded, batch = rows()
    states.requires_grad_()
    embedded.requires_grad_()
    readout(states, embedded, with_targets(batch), at_targets=True).users.square().sum().backward()
    inside = batch.inside.clone()
    assert embedded.grad[inside].abs().sum(-1).gt(0).all()
    inside[1] = False  # one event alone has weight 1 whatever its state
    assert states.grad[inside].abs().sum(-1).gt(0).all()
    assert states.grad[~inside].abs().max() < 1e-12
    assert readout.logit.weight.grad.abs().sum() > 0


def test_whole_model_scores_by_angle_and_learns_without_nan() -> None:
    """Users are averages of the very items that the encoder saw, so a single event points at its own item."""
    torch.manual_seed(0)
    encoder, scorer = TransformerSettings().build(8, 5), CosineSettings().build(8, 9)
    model = SequenceModel(9, 8, encoder, CoreSettings().build(8, 8, 1.0), scorer, item_std=0.35, item_dropout=0.2)
    items = torch.tensor([[1, 2, 3, 4, 5], [6, 0, 0, 0, 0], [7, 8, 9, 0, 0]])
    zeros = torch.zeros_like(items)
    batch = with_targets(Batch(items, zeros, torch.tensor(LENGTHS), zeros, zeros))
    model(batch, at_targets=True).users.sum().backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    scores = model.eval().score(model(batch).users)[1]
    assert scores.argmax() == 6
    assert scores[6].item() == pytest.approx(1 / 0.07, rel=1e-5)


def test_sizes_and_start() -> None:
    readout = CoreSettings().build(64, 64, 1.0)
    assert not readout.streams
    assert readout.logit.weight.abs().max() <= 1 / 8
    assert readout.logit.weight.abs().max() > 0.1
    encoder, scorer = TransformerSettings().build(64, 50), CosineSettings().build(64, 12_101)
    assert SequenceModel(12_101, 64, encoder, readout, scorer).parameter_count() == 877_889
