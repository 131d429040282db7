"""NARM's readout against its equations, written out one position and one event at a time."""

import math

import torch
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.gru import GruSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.narm import Narm, NarmSettings
from marsrec.nn.scorers import DotSettings

LENGTHS = (7, 3, 1)


def small(width: int = 6) -> Narm:
    torch.manual_seed(0)
    return NarmSettings().build(dim=4, width=width, tau0=3600.0).double().eval()


def batch_of(lengths: tuple[int, ...], padded: int = 7, first_target: int = 0) -> Batch:
    inside = torch.arange(padded) < torch.tensor(lengths)[:, None]
    zeros = torch.zeros_like(inside, dtype=torch.long)
    targets = inside.long()
    targets[:, :first_target] = 0
    return Batch(inside.long(), zeros, torch.tensor(lengths), targets, zeros)


def naive_readout(readout: Narm, states: Tensor) -> Tensor:
    """(t, W) states up to a position -> (d,)."""
    latest = states[-1]
    summary = torch.zeros_like(latest)
    for state in states:
        mixed = torch.sigmoid(readout.key.weight @ state + readout.query.weight @ latest)
        summary += (readout.score.weight[0] @ mixed) * state
    return readout.out.weight @ torch.cat([summary, latest])


@torch.no_grad()
def test_user_vectors_at_the_latest_events_equal_the_equations() -> None:
    readout, states = small(), torch.randn(3, 7, 6, dtype=torch.float64)
    users = readout(states, states, batch_of(LENGTHS), False).users
    expected = [naive_readout(readout, row[:length]) for row, length in zip(states, LENGTHS, strict=True)]
    torch.testing.assert_close(users, torch.stack(expected), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_user_vectors_at_all_targets_equal_the_equations() -> None:
    readout, states = small(), torch.randn(3, 7, 6, dtype=torch.float64)
    for first_target in (0, 2):  # rows of long histories have targets only in their latter part
        users = readout(states, states, batch_of(LENGTHS, first_target=first_target), True).users
        expected = [
            naive_readout(readout, row[: t + 1])
            for row, length in zip(states, LENGTHS, strict=True)
            for t in range(first_target, length)
        ]
        torch.testing.assert_close(users, torch.stack(expected), rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_padding_and_other_rows_contribute_nothing() -> None:
    readout, states = small(), torch.randn(3, 50, 6, dtype=torch.float64)  # padding has states too
    for at_targets in (False, True):
        together = readout(states, states, batch_of(LENGTHS, padded=50), at_targets).users
        alone = [
            readout(row[None, :length], row[None, :length], batch_of((length,), padded=length), at_targets).users
            for row, length in zip(states, LENGTHS, strict=True)
        ]
        torch.testing.assert_close(together, torch.cat(alone), rtol=1e-9, atol=1e-9)


def test_gradients_reach_every_parameter_and_no_padding() -> None:
    for at_targets in (False, True):
        readout, states = small(), torch.randn(3, 7, 6, dtype=torch.float64, requires_grad=True)
        readout(states, states, batch_of(LENGTHS), at_targets).users.square().sum().backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in readout.parameters())
        reached = states.grad.abs().sum(-1) > 0
        assert torch.equal(reached, batch_of(LENGTHS).inside)


@torch.no_grad()
def test_dropout_is_on_both_parts_and_only_while_training() -> None:
    readout, states = small(width=500), torch.ones(1, 1, 500, dtype=torch.float64)
    readout.key.weight.zero_()
    readout.query.weight.zero_()
    readout.score.weight.fill_(2 / 500)  # the event counts once, and so both parts are ones
    readout.out.weight.zero_()
    readout.out.weight[0, :500] = 1
    readout.out.weight[1, 500:] = 1
    for at_targets in (False, True):
        kept = readout.eval()(states, states, batch_of((1,), 1), at_targets).users[0, :2]
        torch.testing.assert_close(kept, torch.tensor([500.0, 500.0], dtype=torch.float64))
        dropped = readout.train()(states, states, batch_of((1,), 1), at_targets).users[0, :2]
        assert ((dropped - kept).abs() > 1).all()
        assert ((dropped - kept).abs() < 100).all()


def test_parameters_of_the_whole_model() -> None:
    torch.manual_seed(0)
    encoder = GruSettings(project=False, dropout=0.25).build(64, 50)
    readout = NarmSettings().build(64, encoder.width, 3600.0)
    model = SequenceModel(12_101, 64, encoder, readout, DotSettings().build(64, 12_101))
    assert model.parameter_count() == 897_536
    assert not model.recurrent  # the attention needs all states
    for weight, ends in ((readout.key.weight, 256), (readout.query.weight, 256), (readout.out.weight, 256 + 64)):
        assert abs(weight.std().item() / math.sqrt(2 / ends) - 1) < 0.05  # Xavier, normal
    vectors = [model(batch_of(LENGTHS), at_targets=at).users for at in (False, True)]
    assert [part.shape for part in vectors] == [(3, 64), (11, 64)]


@torch.no_grad()
def test_one_pass_over_a_row_gives_the_vectors_of_its_prefixes() -> None:
    torch.manual_seed(0)
    encoder = GruSettings(project=False, hidden=6).build(4, 7)
    model = SequenceModel(9, 4, encoder, small(), DotSettings().build(4, 9)).double().eval()
    items = torch.tensor([[3, 1, 9, 1, 5]])

    def batch(length: int) -> Batch:
        past = items[:, :length]
        return Batch(past, torch.zeros_like(past), torch.tensor([length]), past, torch.zeros_like(past))

    prefixes = torch.cat([model(batch(length)).users for length in range(1, 6)])
    torch.testing.assert_close(model(batch(5), at_targets=True).users, prefixes, rtol=1e-9, atol=1e-9)
