import pytest
import torch
from torch import Tensor

from marsrec.nn.kernels.decayed_average import decayed_average


def problem(B: int, L: int, first: int = 0, K: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    times = torch.randint(400_000, (B, L), generator=generator)
    times = times.cumsum(1) + 1_000_000_000 - times // 2  # nearly in order
    rates = torch.rand(B, L - first, K, dtype=dtype, generator=generator) * 3
    states = torch.randn(B, L, 8, dtype=dtype, generator=generator)
    return [states.requires_grad_(), times, times[:, first:] + 500, rates.requires_grad_()]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize("time_scale", ["log", "linear"])
@pytest.mark.parametrize(("B", "L", "first"), [(3, 257, 0), (40, 67, 30), (4, 1, 0), (0, 5, 0)])
def test_values_and_gradients_equal_the_references(dtype, tolerance, time_scale, B, L, first):
    states, times, now, rates = problem(B, L, first, dtype=dtype)
    if time_scale == "linear":
        times, now = times // 100, now // 100
    results = []
    for implementation in ("cpu", "reference"):
        averages = decayed_average(
            states, times, now, rates, first=first, time_scale=time_scale, implementation=implementation
        )
        slope = torch.linspace(-1, 1, averages.numel(), dtype=dtype).view_as(averages) / L
        results.append([averages, *torch.autograd.grad(averages, (states, rates), slope)])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


def test_gradcheck_and_strided_inputs(monkeypatch):
    monkeypatch.setattr("marsrec.nn.kernels.decayed_average.CHUNK", 2)
    monkeypatch.setattr("marsrec.nn.kernels.decayed_average.BUFFER", 40)
    states, times, now, rates = problem(3, 6, first=1)
    spread = torch.stack([times, times], dim=2)[..., 0]

    def run(states: Tensor, rates: Tensor) -> Tensor:
        return decayed_average(states.mT.contiguous().mT, spread, now, rates.mT.contiguous().mT, first=1)

    assert torch.autograd.gradcheck(run, (states, rates))
    torch.testing.assert_close(
        run(states, rates), decayed_average(states, times, now, rates, first=1, implementation="reference")
    )


@pytest.mark.parametrize("time_scale", ["log", "linear"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_ages_and_rates_are_finite(time_scale, dtype):
    states, _, _, rates = problem(2, 5, dtype=dtype)
    times = torch.tensor([[0, 1, 2, 2, 2**62], [2**62, 0, 5, 3, 2**40]])  # the second row is out of order
    averages = decayed_average(states, times, times, 1e6 * rates, time_scale=time_scale)
    gradients = torch.autograd.grad(averages.square().sum(), (states, rates))
    assert all(torch.isfinite(value).all() for value in (averages, *gradients))


def test_threads_change_nothing():
    states, times, now, rates = problem(5, 70, dtype=torch.float32)
    threads, results = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        averages = decayed_average(states, times, now, rates)
        results.append((averages, *torch.autograd.grad(averages.square().sum(), (states, rates))))
    torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
