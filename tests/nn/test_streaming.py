"""The streaming form against the dense operator."""

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from marsrec.nn import mixture
from marsrec.nn.kernels.decayed_average import TimeScale, decayed_average
from marsrec.nn.mars import MARS
from marsrec.nn.mixture import coefficients
from marsrec.nn.streaming import average, extend, mixture_weights, start, streaming_average

HOUR = 3600
YEAR = 365 * 24 * HOUR


def histories() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gaps from nothing to years, ties among them: states, times, moments of request, exponents up to 18,000."""
    torch.manual_seed(0)
    B, L, d, K = 4, 40, 6, 3
    gaps = torch.exp(torch.rand(B, L) * 17).long()  # a second to nine months
    gaps[torch.rand(B, L) < 0.3] = 0
    gaps[1, 20], gaps[3] = 5 * YEAR, 0
    times = 1_000_000_000 + gaps.cumsum(1)
    now = times + torch.exp(torch.rand(B, L) * 18).long() * (torch.rand(B, L) < 0.7)
    states = torch.randn(B, L, d, dtype=torch.float64, requires_grad=True)
    rates = torch.exp(torch.rand(B, L, K, dtype=torch.float64) * 12.8 - 3).requires_grad_()
    return states, times, now, rates


def dense(states: Tensor, times: Tensor, now: Tensor, rates: Tensor, first: int) -> Tensor:
    operator = MARS(states.shape[-1], rates.shape[-1]).double()
    positions = torch.arange(first, times.shape[1]).expand(len(times), -1)
    return torch.einsum("bkql,bld->bqkd", operator.weights(times, now, positions, rates), states)


@pytest.mark.parametrize("first", [0, 25])
@pytest.mark.parametrize("clock", ["last event", "request"])
@pytest.mark.parametrize(
    ("exponents", "bound"),  # beyond 1,600 the derivative is as exact as the nodes are dense
    [((0.05, 18_000), 5e-3), ((0.05, 8), 5e-3), ((8.1, 90), 5e-3), ((110, 1500), 5e-3), ((1700, 18_000), 1e-2)],
)
def test_averages_and_gradients_equal_the_dense_operator(
    first: int, clock: str, exponents: tuple[float, float], bound: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixture, "_AT_ONCE", 5_000)  # a few exponents at a time
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
        torch.testing.assert_close(ours, theirs, rtol=0, atol=bound * theirs.abs().max().item())
    single = streaming_average(states.float(), times, now, rates[:, first:].float(), first=first)
    torch.testing.assert_close(single.double(), found, rtol=0, atol=2e-5)


def test_gradcheck() -> None:
    """In log ρ: slopes by ρ fall as 1 / ρ, and those of steep heads would not count."""
    states, times, now, rates = (part[:2, :6].detach() for part in histories())
    states, logs = states.requires_grad_(), rates.log().requires_grad_()
    assert rates.min() < 8
    assert rates.max() > 1600
    assert torch.autograd.gradcheck(lambda h, r: streaming_average(h, times, now, r.exp()), (states, logs))


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


def test_a_time_that_goes_back_counts_as_the_latest_before_it() -> None:
    """As `ties="recbole"` may order events, which keeps file order where float32 rounds times to the same."""
    times, raised = torch.tensor([[0, 50, 20, 300]]), torch.tensor([[0, 50, 50, 300]])
    rates = torch.tensor([0.3, 1.0, 7.0]).double().expand(1, 4, 3)
    states = torch.eye(4).double()[None]  # the averages are the weights
    operator, positions = MARS(4, 3, tau0=60.0).double(), torch.arange(4)[None]
    for now in (times, times + 600):
        found = streaming_average(states, times, now, rates, tau0=60.0)
        expected = operator.weights(raised, torch.maximum(now, raised), positions, rates).transpose(1, 2)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-3)
        past = extend(start(torch.zeros(1, 4).double(), tau0=60.0), states, times)  # in one piece
        torch.testing.assert_close(average(past, rates[:, 3], now[:, 3]), found[:, 3])
        for last in (2, 3):
            weights = mixture_weights(times, now[:, last], torch.tensor([last + 1]), rates[:, last], tau0=60.0)
            torch.testing.assert_close(weights, found[:, last])
        # Where times did not go back, ages are those of the dense form on the times as they are: 300 of the first.
        exact = operator.weights(times, now, positions, rates)[0, :, 3]
        share = found[0, 3, :, 0] / found[0, 3, :, 3]
        torch.testing.assert_close(share, exact[:, 0] / exact[:, 3], rtol=0, atol=1e-3)


@pytest.mark.parametrize(("rho", "gap"), [(100.0, 876), (800.0, 89), (2000.0, 30)])
def test_a_crowd_whose_errors_outweigh_the_newest_event(rho: float, gap: int) -> None:
    """200,000 simultaneous events and a newer one: the total weight comes out below 0, and 1 is the least it can be."""
    crowd = 200_000
    times = torch.zeros(1, crowd + 1, dtype=torch.int64)
    times[:, -1] = gap
    states = torch.zeros(1, crowd + 1, 2)
    states[:, :-1, 0], states[:, -1, 1] = 1, 1  # the average is the shares of the crowd and of the newest
    states.requires_grad_()
    rates = torch.full((1, 1, 1), rho, requires_grad=True)
    weight = crowd * (1 + gap / HOUR) ** -rho
    exact = torch.tensor([weight, 1.0]) / (weight + 1)
    past = extend(start(torch.zeros(1, 2)), states[:, :-1].detach(), times[:, :-1])
    past = extend(past, states[:, -1:].detach(), times[:, -1:])
    assert (coefficients(rates[0], torch.zeros(1)) @ past.counts[..., None]).item() < 0
    found = streaming_average(states, times, times[:, -1:], rates, first=crowd)
    torch.testing.assert_close(found[0, 0, 0], exact, rtol=0, atol=0.11)
    torch.testing.assert_close(average(past, rates[0], past.time), found[0])
    weights = mixture_weights(times, past.time, torch.tensor([crowd + 1]), rates[0])
    torch.testing.assert_close(weights @ states, found[0])
    to_states, to_rates = torch.autograd.grad(found[0, 0, 0, 1], (states, rates))
    assert to_rates.item() == 0
    torch.testing.assert_close(to_states[0, -1, 1].item(), 1.0, rtol=0, atol=1e-3)


def test_extremes_stay_finite() -> None:
    times = torch.tensor([[0, 0, 0, 0], [0, 1, 200 * YEAR, 9_000 * YEAR], [-(2**40), 0, 2**40, 2**60]])
    states = torch.randn(3, 4, 5, requires_grad=True)
    for rho in (1e-3, 0.5, 40.0, 500.0, 5000.0, 1e6):
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


@pytest.mark.parametrize("average", [streaming_average, decayed_average])
def test_shapes_that_do_not_fit_are_named(average: Callable[..., Tensor]) -> None:
    states, times, now, rates = (part.detach() for part in histories())
    found = {
        "(4, 40, 6), (4, 40), (4, 1), (4, 40, 3)": (states, times, now[:, :1], rates),
        "(4, 40, 6), (4, 40), (40,), (4, 40, 3)": (states, times, now[0], rates),
        "(4, 40, 6), (4, 40), (4, 40), (4, 1, 3)": (states, times, now, rates[:, :1]),
        "(4, 40, 6), (4, 39), (4, 40), (4, 40, 3)": (states, times[:, 1:], now, rates),
        "(40, 6), (4, 40), (4, 40), (4, 40, 3)": (states[0], times, now, rates),
    }
    for shapes, given in found.items():
        with pytest.raises(ValueError, match=rf"Q = L - 0; found {re.escape(shapes)}"):
            average(*given)
    with pytest.raises(ValueError, match="Q = L - 41"):
        average(states, times, now[:, :0], rates[:, :0], first=41)


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


@pytest.mark.parametrize(
    ("scale", "steepest", "length", "streams"),
    [
        ("log", 2.0, 390, False),
        ("log", 2.0, 450, True),
        ("log", 300.0, 450, False),
        ("log", 300.0, 1650, True),
        ("log", 30_000.0, 1650, False),
        ("linear", 2.0, 1650, False),
    ],
)
def test_auto_streams_only_long_histories_of_log_time(
    scale: TimeScale, steepest: float, length: int, streams: bool
) -> None:
    states, times = torch.randn(1, length, 4), torch.arange(length)[None]  # seconds, which a steep head tells apart
    results = {}
    for form in ("dense", "auto", "streaming") if scale == "log" else ("dense", "auto"):
        torch.manual_seed(0)
        operator = MARS(4, 2, time_scale=scale, form=form)
        with torch.no_grad():
            operator.raw_rates[1] = steepest
        results[form] = operator(states, times, every=True)
    assert torch.equal(results["dense"], results["auto"]) != streams
    if scale == "log":
        assert torch.equal(results["streaming"], results["auto"]) == streams


def test_moments_of_averages_are_exact() -> None:
    states, times, now, rates = (part.detach() for part in histories())
    for given in ((times.float(), now), (times, now.float())):
        with pytest.raises(ValueError, match="integers, in which moments are exact; found torch"):
            streaming_average(states, *given, rates)


def test_a_past_takes_only_what_fits_it() -> None:
    """Without an axis for positions each user would take in the events of all of them."""
    states, times, _, rates = (part.detach() for part in histories())
    past = extend(start(torch.zeros(4, 6, dtype=torch.float64)), states[:, :1], times[:, :1])
    for given in ((states[:, 1], times[:, 1]), (states[:, 1:2], times[:, 1]), (states[:3, :1], times[:3, :1])):
        with pytest.raises(ValueError, match=r"the past of 4 users takes states \(4, L, 6\) and times \(4, L\); found"):
            extend(past, *given)
    for given in ((rates[:, 0], times[:3, 1]), (rates[:, 0], times[:, 1:2]), (rates, times[:, 1])):
        with pytest.raises(ValueError, match=r"is read with rates \(4, K\) and now \(4,\); found"):
            average(past, *given)


def test_auto_streams_on_the_cpu_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere its scan is a loop of torch over all events."""
    monkeypatch.setattr("marsrec.nn.mars.streaming_average", None)
    operator = MARS(4, 2).to("meta")
    states, times = torch.empty(1, 450, 4, device="meta"), torch.zeros(1, 450, dtype=torch.int64, device="meta")
    assert operator(states, times, every=True).shape == (1, 450, 4)
    with pytest.raises(TypeError):
        MARS(4, 2)(torch.randn(1, 450, 4), torch.arange(450)[None], every=True)


def test_the_streaming_form_needs_log_time() -> None:
    with pytest.raises(ValueError, match="time_scale"):
        MARS(4, 2, time_scale="linear", form="streaming")
