"""EchoMamba4Rec's encoder against its equations, written out for one history without padding."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.echo import Echo, EchoSettings, reordered, reversal

DIM, LENGTH = 4, 9


def small(**settings: object) -> Echo:
    torch.manual_seed(0)
    encoder = EchoSettings.model_validate({"states": 3, **settings}).build(DIM, LENGTH).double().eval()
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


def naive_filter(weight: Tensor, x: Tensor) -> Tensor:
    """(L, d) -> (L, d): one channel after the other, with zeros up to the model's length."""
    out = torch.zeros_like(x)
    for channel in range(DIM):
        signal = torch.zeros(LENGTH, dtype=x.dtype)
        signal[: len(x)] = x[:, channel]
        spectrum = torch.fft.rfft(signal) * torch.complex(weight[:, channel, 0], weight[:, channel, 1])
        out[:, channel] = torch.fft.irfft(spectrum, n=LENGTH)[: len(x)]
    return out


def naive_encoder(encoder: Echo, sequence: Tensor) -> Tensor:
    x = torch.stack([encoder.norm(event) for event in sequence])
    for layer in encoder.layers:
        filtered = naive_filter(layer.filter.weight, x)
        x = torch.stack([layer.filter_norm(out + event) for out, event in zip(filtered, x, strict=True)])
        for pair in layer.pairs:
            forwards = pair.forwards(x[None])[0]
            backwards = list(pair.backwards(torch.stack(list(x)[::-1])[None])[0])[::-1]
            x = torch.stack(
                [
                    pair.forwards_norm(forwards[t] + x[t]) + pair.backwards_norm(backwards[t] + x[t])
                    for t in range(len(x))
                ]
            )
        outputs = []
        for event in x:
            value, gate = layer.gated.value_and_gate(event).split(DIM)
            outputs.append(layer.gated.norm(layer.gated.out(value / (1 + torch.exp(-gate))) + event))
        x = torch.stack(outputs)
    return x


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("length", [1, 3, 4, 5, 9])  # on both sides of half the model's length
@torch.no_grad()
def test_encoder_equals_its_equations(layers: int, length: int) -> None:
    encoder = small(layers=layers)
    rows = histories(length, length)
    expected = torch.stack([naive_encoder(encoder, row) for row in rows])
    states = encoder(torch.stack(rows), batch_of([length] * 2, length))
    torch.testing.assert_close(states, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("published", [False, True])
@torch.no_grad()
def test_neither_padding_nor_other_rows_matter(published: bool) -> None:
    encoder = small(layers=2, published=published)
    rows = histories(1, 2, 4, 3)
    for length in (4, 5, LENGTH):
        states = encoder(padded(rows, length), batch_of([len(row) for row in rows], length))
        for row, state in zip(rows, states, strict=True):
            alone = encoder(row[None], batch_of([len(row)], len(row)))[0]
            torch.testing.assert_close(state[: len(row)], alone, rtol=1e-9, atol=1e-9)


def test_backward_state_space_reads_the_later_events_and_no_padding() -> None:
    pair = small().layers[0].pairs[0]
    lengths = torch.tensor([3])
    x = torch.randn(1, 5, DIM, dtype=torch.float64, requires_grad=True)
    order = reversal(lengths, 5)
    read = reordered(pair.backwards(reordered(x, order)), order)
    for position in range(3):
        (gradient,) = torch.autograd.grad(read[0, position].sum(), x, retain_graph=True)
        assert (gradient[0].abs().sum(-1) > 0).tolist() == [position <= t < 3 for t in range(5)]


def test_state_of_the_latest_event_depends_on_every_event() -> None:
    encoder = small()
    embedded = torch.randn(1, 6, DIM, dtype=torch.float64, requires_grad=True)
    encoder(embedded, batch_of([5], 6))[0, 4, 0].backward()
    assert (embedded.grad[0].abs().sum(-1) > 0).tolist() == [True] * 5 + [False]


@torch.no_grad()
def test_published_reads_padding_like_events() -> None:
    encoder = small(layers=2, published=True)
    (row,) = histories(3)
    expected = naive_encoder(encoder, F.pad(row, (0, 0, 0, LENGTH - 3)))[:3]
    torch.testing.assert_close(encoder(row[None], batch_of([3], 3))[0], expected, rtol=1e-9, atol=1e-9)
    # Without padding there is nothing that differs in a single layer.
    (full,) = histories(LENGTH)
    batch = batch_of([LENGTH], LENGTH)
    assert torch.equal(small(published=True)(full[None], batch), small()(full[None], batch))
    assert not torch.allclose(small(published=True)(row[None], batch_of([3], 3)), small()(row[None], batch_of([3], 3)))


@torch.no_grad()
def test_published_has_pairs_in_square_and_drops_the_residual() -> None:
    assert [len(layer.pairs) for layer in small(layers=3, published=True).layers] == [3, 3, 3]
    assert [len(layer.pairs) for layer in small(layers=3).layers] == [1, 1, 1]
    x = torch.randn(2, 5, DIM, dtype=torch.float64)
    for published in (False, True):
        gated = small(published=published, dropout=0.5).layers[0].gated.train()
        gated.out.weight.zero_()
        gated.out.bias.zero_()  # only the residual is left
        assert torch.equal(gated(x), gated.norm(x)) != published


def test_gradients_reach_every_parameter() -> None:
    for length in (4, LENGTH):
        encoder = small(layers=2)
        embedded = torch.randn(2, length, DIM, dtype=torch.float64)
        encoder(embedded, batch_of([length, 3], length)).square().sum().backward()
        assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_initialisations_and_size() -> None:
    torch.manual_seed(0)
    for initialisation in ("mamba", "published"):
        encoder = EchoSettings(initialisation=initialisation).build(64, 50)
        layer = encoder.layers[0]
        for part in (layer.pairs[0].forwards, layer.pairs[0].backwards):
            steps = F.softplus(part.step_size.bias)
            if initialisation == "mamba":
                assert 0.001 <= steps.min() < steps.max() <= 0.1001
            else:
                assert torch.allclose(steps, torch.tensor(2.0).log())
        assert abs(layer.gated.out.weight.std().item() - 0.02) < 0.001
        assert abs(layer.filter.weight.std().item() - 0.02) < 0.001
        state_space, norm = 38_784, 128
        assert sum(parameter.numel() for parameter in encoder.parameters()) == (
            norm + (26 * 64 * 2 + norm) + 2 * (state_space + norm) + (64 * 128 + 128 + 64 * 64 + 64 + norm)
        )
