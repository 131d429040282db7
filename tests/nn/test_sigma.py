"""SIGMA's encoder against its equations, written out for one history without padding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.echo import reordered, reversal
from marsrec.nn.encoders.sigma import Block, Sigma, SigmaSettings

DIM, LENGTH = 4, 9


def small(length: int = LENGTH, **settings: object) -> Sigma:
    torch.manual_seed(0)
    encoder = SigmaSettings.model_validate({"states": 3, "inner": 10, **settings}).build(DIM, length).double().eval()
    for parameter in encoder.parameters():  # larger weights, and norms whose biases make padding non-zero
        parameter.data += 0.3 * torch.randn_like(parameter)
    return encoder


def batch_of(lengths: list[int], length: int) -> Batch:
    zeros = torch.zeros(len(lengths), length, dtype=torch.long)
    return Batch(zeros, zeros, torch.tensor(lengths), zeros, zeros)


def padded(rows: list[Tensor], length: int) -> Tensor:
    return torch.stack([F.pad(row, (0, 0, 0, length - len(row))) for row in rows])


def histories(*lengths: int) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(length, DIM, dtype=torch.float64) for length in lengths]


def naive_gru(part: Block, x: Tensor) -> Tensor:
    """(L, d) -> (L, d): a weighted sum of each event and its neighbours, then the GRU's recurrence."""
    weight, bias = part.convolution.weight, part.convolution.bias
    h, states = torch.zeros(DIM, dtype=x.dtype), []
    for t in range(len(x)):
        near = bias + sum(weight[:, :, w] @ x[t + w - 1] for w in range(3) if 0 <= t + w - 1 < len(x))
        from_input = (part.gru.weight_ih_l0 @ near).split(DIM)
        from_state = (part.gru.weight_hh_l0 @ h).split(DIM)
        reset = torch.sigmoid(from_input[0] + from_state[0])
        update = torch.sigmoid(from_input[1] + from_state[1])
        h = (1 - update) * torch.tanh(from_input[2] + reset * from_state[2]) + update * h
        states.append(h)
    return torch.stack(states)


def naive_encoder(encoder: Sigma, sequence: Tensor, flips: int, published: bool = False) -> Tensor:
    order = [*reversed(range(flips)), *range(flips, len(sequence))]
    x = torch.stack([encoder.norm(event) for event in sequence])
    for part in encoder.blocks:
        forward = part.state_space(x[None])[0]
        turned = part.state_space(torch.stack([x[t] for t in order])[None])[0]
        recurrent = naive_gru(part, x)
        gates, turned_gates = [], []
        for t, source in enumerate(order):
            gate = part.forward_gate(x[t]) + x[t]
            gates.append(part.gate_silu(gate * torch.sigmoid(gate)) + part.gate_sigmoid(torch.sigmoid(gate)))
            gate = part.flipped_gate(x[source]) + x[source]
            opened = torch.sigmoid(gates[t] if published else gate)
            turned_gates.append(part.gate_silu(gate * torch.sigmoid(gate)) + part.gate_sigmoid(opened))
        shares = part.shares if published else part.shares.exp() / part.shares.exp().sum()
        outputs = []
        for t in range(len(x)):
            place = t if published else order.index(t)  # where in the flipped order this event stands
            flipped = turned[place] * (1 + turned_gates[place])
            mixed = shares[0] * recurrent[t] + shares[1] * flipped + shares[2] * forward[t] * (1 + gates[t])
            mixed = part.out(mixed)
            event = part.mixed_norm(mixed + x[t] if len(encoder.blocks) > 1 else mixed)  # one block has no residual
            first, _, _, second = part.feed_forward
            outputs.append(part.norm(event + second(F.gelu(first(event)))))
        x = torch.stack(outputs)
    return x


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize(("length", "flips"), [(1, 0), (2, 1), (4, 3), (5, 4), (9, 8)])
@torch.no_grad()
def test_encoder_equals_its_equations(layers: int, length: int, flips: int) -> None:
    encoder = small(layers=layers)
    rows = histories(length, length)
    expected = torch.stack([naive_encoder(encoder, row, flips) for row in rows])
    states = encoder(torch.stack(rows), batch_of([length] * 2, length))
    torch.testing.assert_close(states, expected, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_share_that_is_flipped() -> None:
    encoder = small(flipped=0.5)
    (row,) = histories(6)
    expected = naive_encoder(encoder, row, flips=3)
    torch.testing.assert_close(encoder(row[None], batch_of([6], 6))[0], expected, rtol=1e-9, atol=1e-9)
    lengths = torch.arange(1, 201)
    assert small(flipped=0.9).flips(lengths).tolist() == [min(round(0.9 * n), n - 1) for n in range(1, 201)]
    assert small(flipped=0.9).flips(torch.tensor([50])).item() == 45  # as many as the published code of 50 events
    assert (small(flipped=1.0).flips(lengths) == lengths - 1).all()  # the latest event stays in its place
    assert (small(flipped=0.0).flips(lengths) == 0).all()


@pytest.mark.parametrize("published", [False, True])
@torch.no_grad()
def test_neither_padding_nor_other_rows_matter(published: bool) -> None:
    encoder = small(layers=2, published=published)
    rows = histories(1, 2, 6, 3)
    for length in (6, 7, LENGTH):
        states = encoder(padded(rows, length), batch_of([len(row) for row in rows], length))
        for row, state in zip(rows, states, strict=True):
            alone = encoder(row[None], batch_of([len(row)], len(row)))[0]
            torch.testing.assert_close(state[: len(row)], alone, rtol=1e-9, atol=1e-9)


def read_at_latest(encoder: Sigma, events: int, length: int) -> dict[str, list[bool]]:
    """Which positions each branch of the first block has read at the latest event."""
    x = torch.randn(1, length, DIM, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([events])
    inside = (torch.arange(length) < lengths[:, None])[..., None] | bool(encoder.padded_to)
    order = reversal(encoder.flips(lengths), length)
    found = {}
    branches = encoder.blocks[0].branches(x, inside, order)
    for name, branch in zip(("gru", "flipped", "forward"), branches, strict=True):
        (gradient,) = torch.autograd.grad(branch[0, events - 1].sum(), x, retain_graph=True)
        found[name] = (gradient[0].abs().sum(-1) > 0).tolist()
    return found


def test_every_branch_reads_all_events_and_no_padding() -> None:
    events = [True] * 5 + [False] * 4
    assert read_at_latest(small(), 5, LENGTH) == {"gru": events, "flipped": events, "forward": events}


def test_published_flip_shows_short_histories_only_padding() -> None:
    published = small(length=50, published=True)
    # The flipped state space starts at position 44 and goes back. Only the gate reads the latest event of the first.
    for events, earliest in ((22, 21), (30, 15)):
        read = read_at_latest(published, events, 50)
        assert [t for t in range(events) if read["flipped"][t]] == list(range(earliest, events))
        assert read["flipped"][44]
        assert read["gru"][events]  # the convolution reads the padding that follows


def test_latest_event_stays_in_its_place() -> None:
    lengths = torch.tensor([1, 2, 5, 6])
    places = torch.arange(6).expand(4, 6)[..., None]
    turned = reordered(places, reversal(small().flips(lengths), 6))[..., 0]
    assert turned.tolist() == [[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5], [3, 2, 1, 0, 4, 5], [4, 3, 2, 1, 0, 5]]


@pytest.mark.parametrize(("length", "flips"), [(LENGTH, LENGTH), (48, 45)])
@torch.no_grad()
def test_published_equals_the_published_equations(length: int, flips: int) -> None:
    encoder = small(length=length, layers=2, published=True)
    (row,) = histories(4)
    expected = naive_encoder(encoder, F.pad(row, (0, 0, 0, length - 4)), flips, published=True)[:4]
    torch.testing.assert_close(encoder(row[None], batch_of([4], 4))[0], expected, rtol=1e-9, atol=1e-9)


def test_gradients_reach_every_parameter() -> None:
    encoder = small(layers=2)
    embedded = torch.randn(2, 5, DIM, dtype=torch.float64)
    encoder(embedded, batch_of([5, 3], 5)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_initialisations_and_size() -> None:
    torch.manual_seed(0)
    for initialisation in ("mamba", "published"):
        encoder = SigmaSettings(initialisation=initialisation).build(64, 50)
        part = encoder.blocks[0]
        steps = F.softplus(part.state_space.step_size.bias)
        if initialisation == "mamba":
            assert 0.001 <= steps.min() < steps.max() <= 0.1001
        else:
            assert torch.allclose(steps, torch.tensor(2.0).log())
        for linear in (part.forward_gate, part.flipped_gate, part.gate_silu, part.gate_sigmoid, part.out):
            assert abs(linear.weight.std().item() - 0.02) < 0.001
        torch.testing.assert_close(part.shares.softmax(0), torch.tensor([0.1, 0.1, 0.8]))
        state_space, norm, linear, feed_forward = 38_784, 128, 64 * 64 + 64, 64 * 256 + 256 + 256 * 64 + 64
        assert sum(parameter.numel() for parameter in encoder.parameters()) == (
            norm + state_space + 5 * linear + (64 * 64 * 3 + 64) + 6 * 64 * 64 + 3 + norm + feed_forward + norm
        )
    raw = SigmaSettings(published=True).build(64, 50).blocks[0].shares
    torch.testing.assert_close(raw.detach(), torch.tensor([0.1, 0.1, 0.8]))
