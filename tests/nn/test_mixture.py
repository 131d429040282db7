"""Mixtures of exponentials against the power laws that they stand for."""

import numpy as np
import pytest
import torch

from marsrec.nn.mixture import LONGEST, NODES, STEEPEST, coefficients, nodes


def worst_error(count: int, dtype: torch.dtype) -> float:
    """Largest error of a weight over all exponents and ages, relative to the newest event's weight / (1 + z)."""
    rates = torch.tensor([1e-8, 1e-4, 0.006, *np.geomspace(0.03, STEEPEST, 36)])  # training comes close to 0
    worst = 0.0
    for newest in np.append(0.0, np.geomspace(0.001, LONGEST, 15)):
        older = torch.tensor(np.append(0.0, np.geomspace(1e-5, max(LONGEST - newest, 2e-3), 400)))
        mix = coefficients(rates.to(dtype), torch.tensor(newest).to(dtype), count=count).double()  # (rates, M)
        found = mix @ torch.exp(-torch.tensor(nodes(count))[:, None] * older)  # (rates, ages)
        z = older / (1 + newest)
        error = (found / found[:, :1] - (1 + z) ** -rates[:, None]).abs()
        worst = max(worst, (error * (1 + z) ** rates[:, None].clamp(max=1)).max().item())
    return worst


@pytest.mark.parametrize(("count", "bound"), [(32, 7e-3), (NODES, 5e-4)])
def test_weights_follow_the_power_law(count: int, bound: float) -> None:
    assert worst_error(count, torch.float64) < bound
    assert worst_error(count, torch.float32) < bound


def test_coefficients_are_tame() -> None:
    """Also for exponents and ages nobody has: finite, of moderate size, with finite slopes."""
    rates = torch.tensor([1e-7, 0.03, 1.0, 8.0, 1600.0, 1e5], requires_grad=True)
    newest = torch.tensor([0.0, 1.0, 1e3, LONGEST, 1e9, 1e16])
    mix = coefficients(rates.expand(6, 6), newest)
    (slopes,) = torch.autograd.grad(mix.square().sum(), rates)
    assert mix.abs().sum(-1).max() < 11
    assert torch.isfinite(slopes).all()
    assert slopes[0] == slopes[-1] == 0  # beyond both ends nothing changes
    torch.testing.assert_close(mix.sum(-1), torch.ones(6, 6), rtol=1e-3, atol=0)
    assert coefficients(torch.tensor([torch.nan]), torch.tensor(0.0)).isnan().all()  # and no number out of nowhere
