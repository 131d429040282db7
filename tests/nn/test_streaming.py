"""The streaming form against the power law it stands for, and against the dense operator."""

import numpy as np
import pytest
import torch
from torch import Tensor

from marsrec.nn import streaming
from marsrec.nn.mars import MARS
from marsrec.nn.streaming import (
    LONGEST,
    NODES,
    average,
    coefficients,
    extend,
    mixture_weights,
    nodes,
    start,
    streaming_average,
)

HOUR = 3600
YEAR = 365 * 24 * HOUR


def worst_error(count: int, dtype: torch.dtype) -> float:
    """Largest error of a weight over all exponents and ages, relative to the newest event's weight / (1 + z)."""
    rates = torch.tensor(np.geomspace(0.03, 100, 20))
    worst = 0.0
    for newest in np.append(0.0, np.geomspace(0.1, LONGEST, 15)):
        older = torch.tensor(np.append(0.0, np.geomspace(1e-4, max(LONGEST - newest, 2e-3), 400)))
        mix = coefficients(rates.to(dtype), torch.tensor(newest).to(dtype), count=count).double()  # (rates, M)
        found = mix @ torch.exp(-torch.tensor(nodes(count))[:, None] * older)  # (rates, ages)
        z = older / (1 + newest)
        error = (found / found[:, :1] - (1 + z) ** -rates[:, None]).abs()
        worst = max(worst, (error * (1 + z) ** rates[:, None].clamp(max=1)).max().item())
    return worst


@pytest.mark.parametrize(("count", "bound"), [(24, 6e-3), (28, 2e-3), (NODES, 5e-4), (36, 2e-4)])
def test_weights_follow_the_power_law(count: int, bound: float) -> None:
    assert worst_error(count, torch.float64) < bound
    assert worst_error(count, torch.float32) < bound


def test_coefficients_are_tame() -> None:
    """Also for exponents and ages nobody has: finite, of moderate size, with finite slopes."""
    rates = torch.tensor([1e-4, 0.03, 1.0, 8.0, 100.0, 1e4], requires_grad=True)
    newest = torch.tensor([0.0, 1.0, 1e3, LONGEST, 1e9, 1e16])
    mix = coefficients(rates.expand(6, 6), newest)
    (slopes,) = torch.autograd.grad(mix.square().sum(), rates)
    assert mix.abs().sum(-1).max() < 6
    assert torch.isfinite(slopes).all()
    torch.testing.assert_close(mix.sum(-1), torch.ones(6, 6), rtol=1e-3, atol=0)


def histories() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gaps from nothing to years, ties among them: states, times, moments of request and exponents."""
    torch.manual_seed(0)
    B, L, d, K = 4, 40, 6, 3
    gaps = torch.exp(torch.rand(B, L) * 17).long()  # a second to nine months
    gaps[torch.rand(B, L) < 0.3] = 0
    gaps[1, 20], gaps[3] = 5 * YEAR, 0
    times = 1_000_000_000 + gaps.cumsum(1)
    now = times + torch.exp(torch.rand(B, L) * 18).long() * (torch.rand(B, L) < 0.7)
    states = torch.randn(B, L, d, dtype=torch.float64, requires_grad=True)
    rates = torch.exp(torch.rand(B, L, K, dtype=torch.float64) * 7.5 - 3).requires_grad_()  # 0.05 to 90
    return states, times, now, rates


def dense(states: Tensor, times: Tensor, now: Tensor, rates: Tensor, first: int) -> Tensor:
    operator = MARS(states.shape[-1], rates.shape[-1]).double()
    positions = torch.arange(first, times.shape[1]).expand(len(times), -1)
    return torch.einsum("bkql,bld->bqkd", operator.weights(times, now, positions, rates), states)


@pytest.mark.parametrize("first", [0, 25])
@pytest.mark.parametrize("clock", ["last event", "request"])
@pytest.mark.parametrize("exponents", [(0.05, 90), (0.05, 8), (8.1, 90)])
def test_averages_and_gradients_equal_the_dense_operator(
    first: int, clock: str, exponents: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streaming, "_AT_ONCE", 100)
    states, times, now, rates = histories()
    rates = rates.detach().clamp(*exponents).requires_grad_()
    now = (now if clock == "request" else times)[:, first:]
    expected = dense(states, times, now, rates[:, first:], first)
    found = streaming_average(states, times, now, rates[:, first:], first=first)
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-3)
    grad = torch.randn_like(expected)
    for ours, theirs in zip(
        torch.autograd.grad(found, (states, rates), grad),
        torch.autograd.grad(expected, (states, rates), grad),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=5e-3 * theirs.abs().max().item())
    single = streaming_average(states.float(), times, now, rates[:, first:].float(), first=first)
    torch.testing.assert_close(single.double(), found, rtol=0, atol=2e-5)


def test_gradcheck() -> None:
    states, times, now, rates = (part[:2, :6].detach() for part in histories())
    states.requires_grad_(), rates.requires_grad_()
    assert torch.autograd.gradcheck(lambda h, r: streaming_average(h, times, now, r), (states, rates), fast_mode=True)


@pytest.mark.parametrize("piece", [1, 7, 40])
def test_piece_by_piece_equals_all_at_once(piece: int) -> None:
    states, times, now, rates = (part.detach() for part in histories())
    expected = streaming_average(states, times, now, rates)
    past = start(torch.zeros(4, 6, dtype=torch.float64))
    for t in range(0, times.shape[1], piece):
        past = extend(past, states[:, t : t + piece], times[:, t : t + piece])
        last = min(t + piece, times.shape[1]) - 1
        found = average(past, rates[:, last], now[:, last])
        torch.testing.assert_close(found, expected[:, last], rtol=1e-9, atol=1e-9)
    assert (past.counts[:, 0] == 40).all()


def test_weights_of_the_mixture_are_those_of_the_average() -> None:
    states, times, now, rates = (part.detach() for part in histories())
    lengths = torch.tensor([40, 33, 1, 7])
    last = lengths[:, None] - 1
    moment, exponents = now.gather(1, last)[:, 0], rates.gather(1, last[..., None].expand(-1, -1, 3))[:, 0]
    weights = mixture_weights(times, moment, lengths, exponents)
    expected = streaming_average(states, times, now, rates)[torch.arange(4), lengths - 1]
    torch.testing.assert_close(weights @ states, expected, rtol=1e-9, atol=1e-9)
    assert (weights[2, :, 1:] == 0).all()


def test_extremes_stay_finite() -> None:
    times = torch.tensor([[0, 0, 0, 0], [0, 1, 200 * YEAR, 9_000 * YEAR], [-(2**40), 0, 2**40, 2**60]])
    states = torch.randn(3, 4, 5, requires_grad=True)
    for rho in (1e-3, 0.5, 40.0):
        rates = torch.full((3, 4, 2), rho, requires_grad=True)
        for now in (times, times + 10_000 * YEAR, times - YEAR):
            found = streaming_average(states, times, now, rates)
            gradients = torch.autograd.grad(found.square().sum(), (states, rates))
            assert all(torch.isfinite(part).all() for part in (found, *gradients))
            assert found.abs().max() < 1.1 * states.abs().max()  # an average, whatever the ages


def test_no_events_no_average() -> None:
    found = average(start(torch.zeros(2, 5)), torch.tensor([[0.0, 1.0]] * 2), torch.tensor([0, 10]))
    assert (found == 0).all()


def test_padding_on_the_right_changes_nothing() -> None:
    states, times, now, rates = (part.detach() for part in histories())
    expected = streaming_average(states, times, now, rates)
    times[:, 30:], now[:, 30:] = 0, 0
    found = streaming_average(states, times, now, rates)
    assert torch.equal(found[:, :30], expected[:, :30])
    assert torch.isfinite(found).all()
    assert streaming_average(states[:, :0], times[:, :0], now[:, :0], rates[:, :0]).shape == (4, 0, 3, 6)


def test_linear_time_is_refused() -> None:
    states, times, now, rates = histories()
    with pytest.raises(ValueError, match="time_scale"):
        streaming_average(states, times, now, rates, time_scale="linear")


@pytest.mark.parametrize("switches", [{}, {"real_time": False}, {"modulation": False}], ids=str)
@pytest.mark.parametrize("every", [False, True])
def test_the_operator_in_both_forms(every: bool, switches: dict) -> None:
    """User vectors, and the gradients of all parameters and of the states."""
    states, times, now, _ = histories()
    found = {}
    for form in ("dense", "streaming"):
        torch.manual_seed(1)
        operator = MARS(6, 3, form=form, **switches).double()
        for parameter in operator.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        given = {"every": True, "first": 5} if every else {"lengths": torch.tensor([40, 33, 1, 7])}
        users = operator(states, times, now=now[:, 5:] if every else times[:, -1] + HOUR, **given)
        inputs = [states, *operator.parameters()]
        found[form] = [users, *torch.autograd.grad(users.square().sum(), inputs, materialize_grads=True)]
    for one, other in zip(found["streaming"], found["dense"], strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=2e-3 * max(1.0, other.abs().max().item()))


def test_auto_streams_only_long_histories_of_log_time() -> None:
    states, times = torch.randn(1, 450, 4), torch.arange(450)[None] * HOUR
    for scale, long in (("log", True), ("linear", False)):
        results = {}
        for form in ("dense", "auto"):
            torch.manual_seed(0)
            results[form] = MARS(4, 2, time_scale=scale, form=form)(states, times, every=True)
        assert torch.equal(results["dense"], results["auto"]) != long
    with pytest.raises(ValueError, match="time_scale"):
        MARS(4, 2, time_scale="linear", form="streaming")
