"""FEARec's encoder against its equations, with torch's Fourier transform of one unpadded history at a time."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.nn.encoders.frequency import (
    FrequencyBlock,
    FrequencyEncoder,
    FrequencySettings,
    fourier,
    ramp,
    self_correlation,
)

LENGTHS = [1, 2, 3, 5, 8, 12]


def small(length: int = 12, **settings: object) -> FrequencyEncoder:
    torch.manual_seed(0)
    encoder = FrequencySettings.model_validate({"inner": 10, **settings}).build(dim=4, length=length).double().eval()
    for block in encoder.blocks:  # from 0.02 all correlations would be nearly the same
        torch.nn.init.normal_(block.qkv.weight)
    return encoder


def batch_of(lengths: list[int], L: int) -> Batch:
    zeros = torch.zeros(len(lengths), L, dtype=torch.long)
    return Batch(zeros, zeros, torch.tensor(lengths), zeros, zeros)


def histories(lengths: list[int], L: int) -> Tensor:
    torch.manual_seed(1)
    rows = [torch.randn(n, 4, dtype=torch.float64) for n in lengths]
    return torch.stack([F.pad(row, (0, 0, 0, L - len(row))) for row in rows])


def within(x: Tensor, first: int, after: int) -> Tensor:
    """Keep frequencies first .. after - 1 of a sequence (n, ...)."""
    spectrum = torch.fft.rfft(x, dim=0)
    spectrum[:first], spectrum[after:] = 0, 0
    return torch.fft.irfft(spectrum, n=len(x), dim=0)


def naive_block(block: FrequencyBlock, x: Tensor, first: int, after: int, lags: int, gamma: float) -> Tensor:
    n, d = x.shape
    query, key, value = block.qkv(x).split(d, dim=-1)
    products = torch.fft.rfft(query, dim=0) * torch.fft.rfft(key, dim=0).conj()
    products[:first], products[after:] = 0, 0
    correlation = torch.fft.irfft(products, n=n, dim=0).mean(-1)
    best = sorted(range(n), key=lambda lag: (-round(float(correlation[lag]), 9), lag))[:lags]  # if equal, the shorter
    mixed = sum(w * value.roll(-lag, 0) for w, lag in zip(correlation[best].softmax(0), best, strict=True))
    if gamma:
        attended = torch.empty_like(x)
        for head in range(block.heads):
            part = slice(head * d // block.heads, (head + 1) * d // block.heads)
            q, k, v = (within(whole[:, part], first, after) for whole in (query, key, value))
            for i in range(n):
                weights = torch.stack([q[i] @ k[j] / math.sqrt(d // block.heads) for j in range(i + 1)]).softmax(0)
                attended[i, part] = sum(weights[j] * v[j] for j in range(i + 1))
        mixed = (1 - gamma) * mixed + gamma * attended
    x = block.attention_norm(x + block.out(mixed))
    first_layer, _, second_layer = block.feed_forward
    return block.norm(x + second_layer(F.gelu(first_layer(x))))


def naive_encoder(encoder: FrequencyEncoder, sequence: Tensor, share: float, lags: int, gamma: float) -> Tensor:
    n = len(sequence)
    x = encoder.norm(sequence + encoder.positions.weight[:n])
    for index, block in enumerate(encoder.blocks):
        x = naive_block(block, x, *ramp(index, len(encoder.blocks), share, n), lags, gamma)
    return x


@pytest.mark.parametrize("settings", [{}, {"band": 0.2, "layers": 3, "lag_factor": 2}, {"time_weight": 0.7, "band": 1}])
@torch.no_grad()
def test_encoder_equals_its_equations(settings: dict[str, float]) -> None:
    encoder = small(**settings)
    embedded = histories(LENGTHS, 12)
    states = encoder(embedded, batch_of(LENGTHS, 12))
    lags = int(settings.get("lag_factor", 1) * math.log(12))
    for row, n in enumerate(LENGTHS):
        share, gamma = settings.get("band", 0.6), settings.get("time_weight", 0.1)
        expected = naive_encoder(encoder, embedded[row, :n], share, lags, gamma)
        torch.testing.assert_close(states[row, :n], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("settings", [{}, {"band": 0.1, "layers": 4}], ids=["ramp", "bands of one frequency"])
@torch.no_grad()
def test_neither_padding_nor_other_rows_matter(settings: dict[str, float]) -> None:
    encoder = small(length=50, **settings)
    lengths = [1, 2, 4, 6, 7]
    states = encoder(histories(lengths, 7), batch_of(lengths, 7))
    wide = encoder(histories(lengths, 50), batch_of(lengths, 50))
    for row, n in enumerate(lengths):
        alone = encoder(histories(lengths, 7)[row : row + 1, :n], batch_of([n], n))[0]
        torch.testing.assert_close(states[row, :n], alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(wide[row, :n], alone, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("n", [1, 2, 7, 8])
def test_transform_and_back_is_a_band_filter(n: int) -> None:
    x = torch.randn(n, 3, dtype=torch.float64)
    for first, after in [(0, n // 2 + 1), (0, 1), (n // 2, n // 2 + 1)]:
        bands = torch.tensor([[first, after]]).repeat(n + 1, 1)
        analysis, synthesis = fourier(torch.tensor([n]), n, bands, torch.float64)
        torch.testing.assert_close(synthesis[0].T @ (analysis[0] @ x), within(x, first, after), rtol=1e-12, atol=1e-12)


def test_bands_go_from_high_to_low_frequencies() -> None:
    assert [ramp(block, 2, 0.6, 50) for block in range(2)] == [(10, 26), (0, 16)]  # those of the authors' Beauty run
    assert [ramp(block, 2, 1.0, 50) for block in range(2)] == [(0, 26), (0, 26)]
    assert [ramp(block, 2, 0.1, 50) for block in range(2)] == [(13, 26), (0, 13)]  # not less than a half each
    for layers, share, n in [(2, 0.6, 1), (3, 0.1, 2), (1, 0.5, 9), (4, 0.1, 3)]:
        bands = [ramp(block, layers, share, n) for block in range(layers)]
        assert all(0 <= first < after <= n // 2 + 1 for first, after in bands)


def test_correlation_finds_the_period() -> None:
    query = torch.eye(4, dtype=torch.float64).repeat(3, 1)  # one of four items after another
    bands = torch.tensor([[0, 7]]).repeat(13, 1)
    band = fourier(torch.tensor([12]), 12, bands, torch.float64)
    coefficients = band.analysis @ query, band.analysis @ query.roll(-1, 0)  # each key is the item that comes next
    correlation = self_correlation(*coefficients, band)[0]
    expected = torch.tensor([0, 3, 0, 0] * 3, dtype=torch.float64)  # 12 agreements in 4 channels at lags 1, 5 and 9
    torch.testing.assert_close(correlation, expected, rtol=0, atol=1e-12)


def test_gradients_reach_every_parameter() -> None:
    encoder = small()
    encoder(histories(LENGTHS, 12), batch_of(LENGTHS, 12)).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_parameters_are_those_of_the_transformer() -> None:
    encoder = FrequencySettings().build(64, 50)
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 103_296
    assert "bands" not in encoder.state_dict()


@torch.no_grad()
def test_published_takes_the_padded_length_as_period() -> None:
    encoder = small(published=True)
    embedded = histories(LENGTHS, 12)
    states = encoder(embedded, batch_of(LENGTHS, 12))
    for row, sequence in enumerate(embedded):  # padding is encoded as if it were events
        expected = naive_encoder(encoder, sequence, 1.0, 2, 0.0)
        torch.testing.assert_close(states[row], expected, rtol=1e-9, atol=1e-9)
    short = encoder(embedded[:4, :5], batch_of(LENGTHS[:4], 5))
    torch.testing.assert_close(short, states[:4, :5], rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_published_lags_depend_on_other_rows_in_training_only() -> None:
    for published in (True, False):
        encoder = small(published=published, dropout=0.0)
        embedded = histories([12] * 6, 12)
        for training in (True, False):
            encoder.train(training)
            together = encoder(embedded, batch_of([12] * 6, 12))
            alone = torch.cat([encoder(row[None], batch_of([12], 12)) for row in embedded])
            assert torch.allclose(together, alone) != (published and training)
