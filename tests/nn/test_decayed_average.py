import pytest
import torch
from torch import Tensor

from marsrec.nn.kernels.decayed_average import decayed_average


def problem(B: int, L: int, first: int = 0, K: int = 3) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    times = torch.randint(400_000, (B, L), generator=generator)
    times = times.cumsum(1) + 1_000_000_000 - times // 2  # nearly in order
    rates = torch.rand(B, L - first, K, generator=generator) * 3
    states = torch.randn(B, L, 8, generator=generator)
    return [states.requires_grad_(), times, times[:, first:] + 500, rates.requires_grad_()]


@pytest.mark.parametrize(("chunk", "buffer"), [(32, 1 << 18), (2, 40)])
@pytest.mark.parametrize("time_scale", ["log", "linear"])
@pytest.mark.parametrize(("B", "L", "first"), [(3, 130, 0), (20, 67, 30), (3, 6, 1), (4, 1, 0), (0, 5, 0)])
def test_values_and_gradients_equal_the_plain_forms(time_scale, B, L, first, chunk, buffer, monkeypatch):
    monkeypatch.setattr("marsrec.nn.kernels.decayed_average.CHUNK", chunk)
    monkeypatch.setattr("marsrec.nn.kernels.decayed_average.BUFFER", buffer)
    states, times, now, rates = problem(B, L, first)
    if time_scale == "linear":
        times, now = times // 100, now // 100
    results = []
    for kind in (torch.float32, torch.float64):
        averages = decayed_average(
            states.to(kind).mT.contiguous().mT,
            torch.stack([times, times], dim=2)[..., 0],
            now,
            rates.to(kind).mT.contiguous().mT,
            first=first,
            time_scale=time_scale,
        )
        slope = torch.linspace(-1, 1, averages.numel()).view_as(averages).to(kind) / L
        results.append([averages.double(), *torch.autograd.grad(averages, (states, rates), slope)])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("time_scale", ["log", "linear"])
def test_huge_ages_and_rates_are_finite(time_scale):
    states, _, _, rates = problem(2, 5)
    times = torch.tensor([[0, 1, 2, 2, 2**62], [2**62, 0, 5, 3, 2**40]])  # the second row is out of order
    averages = decayed_average(states, times, times, 1e6 * rates, time_scale=time_scale)
    gradients = torch.autograd.grad(averages.square().sum(), (states, rates))
    assert all(torch.isfinite(value).all() for value in (averages, *gradients))


def test_threads_change_nothing():
    states, times, now, rates = problem(5, 70)
    threads, results = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        averages = decayed_average(states, times, now, rates)
        results.append((averages, *torch.autograd.grad(averages.square().sum(), (states, rates))))
    torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
