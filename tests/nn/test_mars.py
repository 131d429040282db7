"""The operator against Algorithm "MARS forward pass", computed event by event in plain Python floats."""

import copy
import math

import pytest
import torch
from torch import Tensor

from marsrec.errors import SettingsError
from marsrec.nn import mixture
from marsrec.nn.kernels.decayed_average import TimeScale
from marsrec.nn.mars import MARS, Form, balance_loss, diversity_loss
from marsrec.nn.readouts.mars import MarsSettings

HOUR = 3600
YEAR = 365 * 24 * HOUR


def softplus(x: float) -> float:
    return math.log1p(math.exp(x))


def gelu(x: float) -> float:
    return x * 0.5 * (1 + math.erf(x / math.sqrt(2)))


def linear(layer: torch.nn.Linear, x: list[float]) -> list[float]:
    bias = layer.bias.tolist() if layer.bias is not None else [0.0] * layer.out_features
    rows = zip(layer.weight.tolist(), bias, strict=True)
    return [sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in rows]


def mlp(layers: torch.nn.Sequential, x: list[float]) -> list[float]:
    return linear(layers[2], [gelu(v) for v in linear(layers[0], x)])


def softmax(x: list[float]) -> list[float]:
    top = max(x)
    exps = [math.exp(v - top) for v in x]
    return [e / sum(exps) for e in exps]


def algorithm(op: MARS, H: list[list[float]], t: list[int], now: int, e_last: list[float]) -> list[float]:
    """The forward pass for one user, line by line."""
    L, d = len(H), len(H[0])
    h_last = H[-1]
    dt = [now - ti for ti in t] if op.real_time else [HOUR * (L - 1 - i) for i in range(L)]
    x = [math.log(1 + v / HOUR) if op.time_scale == "log" else v / HOUR for v in dt]
    lam = [softplus(v) for v in op.raw_rates.tolist()]
    tau = [softplus(v) + 0.1 for v in op.raw_temperatures.tolist()]
    if op.modulation is not None:
        delta = mlp(op.modulation, h_last)
        lam = [lk * math.exp(0.5 * math.tanh(dk)) for lk, dk in zip(lam, delta, strict=True)]
    V = [h if op.value_map is None else linear(op.value_map, h) for h in H]
    Z = []
    for lk, tk in zip(lam, tau, strict=True):
        w = softmax([-lk * xi / tk for xi in x])
        Z.append([sum(w[i] * V[i][c] for i in range(L)) for c in range(d)])
    context = mlp(op.time_encoder, [x[-1]]) + e_last + h_last
    g = [linear(op.gate_out, [math.tanh(v) for v in linear(op.gate_hidden, Zk + context)])[0] for Zk in Z]
    alpha = softmax(g)
    return [h_last[c] + sum(a * Zk[c] for a, Zk in zip(alpha, Z, strict=True)) for c in range(d)]


def random_operator(heads: int = 3, dim: int = 6, **switches: object) -> MARS:
    torch.manual_seed(1)
    op = MARS(dim, heads, **switches).double()  # type: ignore[arg-type]
    for parameter in op.parameters():  # also the zeroed ones: every part has to take part
        torch.nn.init.normal_(parameter, std=0.5)
    return op


def random_histories(dim: int = 6) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    gaps = torch.tensor([[0, 5, 4000, 0, 9 * YEAR, 60, 3], [0, 1, 1, 1, 86400, 0, 0], [0] * 7])
    times = 1_000_000_000 + gaps.cumsum(1)
    return torch.randn(3, 7, dim).double(), times, torch.tensor([7, 5, 1]), torch.randn(3, 7, dim).double()


@pytest.mark.parametrize("time_scale", ["log", "linear"])
@pytest.mark.parametrize("switches", [{}, {"real_time": False}, {"modulation": False}, {"values": True}])
@pytest.mark.parametrize("request_after", [None, 12345])
def test_every_position_equals_the_algorithm(time_scale: str, switches: dict, request_after: int | None) -> None:
    op = random_operator(time_scale=time_scale, **switches)
    states, times, lengths, embedded = random_histories()
    now = None if request_after is None else times + request_after
    every = op(states, times, now=now, last_items=embedded, every=True)
    for b, length in enumerate(lengths.tolist()):
        for i in range(length):
            moment = int(times[b, i]) + (request_after or 0)
            expected = algorithm(
                op, states[b, : i + 1].tolist(), times[b, : i + 1].tolist(), moment, embedded[b, i].tolist()
            )
            torch.testing.assert_close(every[b, i], torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)


def test_last_position_equals_every_position_and_ignores_padding() -> None:
    op = random_operator()
    states, times, lengths, embedded = random_histories()
    last = (lengths - 1)[:, None, None].expand(-1, 1, 6)
    expected = op(states, times, last_items=embedded, every=True).gather(1, last)[:, 0]
    last_items = embedded.gather(1, last)[:, 0]
    torch.testing.assert_close(op(states, times, lengths=lengths, last_items=last_items), expected)
    states[1, 5:], times[1, 5:] = 1e6, 0
    torch.testing.assert_close(op(states, times, lengths=lengths, last_items=last_items), expected)


def test_chunks_and_a_later_start_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    op = random_operator()
    states, times, _, embedded = random_histories()
    whole = op(states, times, last_items=embedded, every=True)
    monkeypatch.setattr("marsrec.nn.kernels.decayed_average.CHUNK", 2)
    torch.testing.assert_close(op(states, times, last_items=embedded, every=True), whole)
    later = op(states, times, now=times[:, 3:], last_items=embedded[:, 3:], every=True, first=3)
    torch.testing.assert_close(later, whole[:, 3:])


def test_gradcheck() -> None:
    op = random_operator(heads=2, dim=3)
    states, times, _, embedded = random_histories(dim=3)
    states.requires_grad_()
    names = list(dict(op.named_parameters()))

    def run(states: Tensor, *values: Tensor) -> Tensor:
        arguments = (states, times)
        options = {"now": times + 50, "last_items": embedded, "every": True}
        result = torch.func.functional_call(op, dict(zip(names, values, strict=True)), arguments, options)
        return result[0]

    assert torch.autograd.gradcheck(run, (states, *op.parameters()), fast_mode=True)


def test_the_readout_starts_neutrally_too() -> None:
    readout = MarsSettings(values=True).build(6, 6, 3600.0)
    states = torch.randn(5, 6)
    torch.testing.assert_close(readout.operator.values(states), states)
    assert torch.equal(readout.operator.rates(states), readout.operator.base_rates().expand(5, -1))


def test_training_starts_from_the_states_as_values() -> None:
    states, times, lengths, _ = random_histories()
    operators = []
    for values in (False, True):
        torch.manual_seed(0)
        op = MARS(6, 3, values=values).double()
        for name, parameter in op.named_parameters():
            if name != "value_map.weight":
                torch.manual_seed(len(name))
                torch.nn.init.normal_(parameter)
        operators.append(op)
    plain, mapped = (op(states, times, lengths=lengths) for op in operators)
    torch.testing.assert_close(mapped, plain)


def test_training_starts_from_the_unmodulated_rates() -> None:
    op = MARS(8, 4)
    assert torch.equal(op.rates(torch.randn(5, 8)), op.base_rates().expand(5, 4))
    # softplus on a linspace from -1 to 2, over a temperature of softplus(0) + 0.1
    expected = torch.tensor([softplus(v) / (softplus(0) + 0.1) for v in (-1.0, 0.0, 1.0, 2.0)])
    torch.testing.assert_close(op.base_rates(), expected)


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("gap", [0, 10 * YEAR])
@pytest.mark.parametrize("length", [1, 4])
@pytest.mark.parametrize("time_scale", ["log", "linear"])
def test_extremes_give_finite_values_and_gradients(heads: int, gap: int, length: int, time_scale: str) -> None:
    torch.manual_seed(0)
    op = MARS(8, heads, time_scale=time_scale)  # type: ignore[arg-type]
    states = torch.randn(2, length, 8, requires_grad=True)
    times = (gap * torch.arange(length)).expand(2, -1)
    reading, weights = op.read(states, times, every=True), op.read(states, times).weights
    loss = reading.users.square().sum() + diversity_loss(weights) + balance_loss(reading.gate[:, -1])
    loss.backward()
    gradients = [parameter.grad for parameter in op.parameters() if parameter.grad is not None]
    for value in (reading.users, weights, states.grad, *gradients):
        assert torch.isfinite(value).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, heads))


def test_one_event_is_read_twice() -> None:
    """With a single event all summaries are its state, so the user vector is twice the state whatever the gate says."""
    states = torch.randn(3, 1, 8)
    torch.testing.assert_close(MARS(8, 4)(states, torch.zeros(3, 1, dtype=torch.int64)), 2 * states[:, 0])


def test_an_event_after_now_counts_as_happening_now() -> None:
    op = random_operator()
    states, times, _, _ = random_histories()
    now = times[:, -1] - 10
    clamped = torch.minimum(times, now[:, None])
    late = op(states, times, now=now, checked=False)
    torch.testing.assert_close(late, op(states, clamped, now=now))


def naive_divergence(weights: Tensor) -> float:
    total = 0.0
    for k, p in enumerate(weights.tolist()):
        for j, q in enumerate(weights.tolist()):
            if k != j:
                m = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
                total += sum(a * math.log(a / c) for a, c in zip(p, m, strict=True) if a > 0) / 2
                total += sum(b * math.log(b / c) for b, c in zip(q, m, strict=True) if b > 0) / 2
    return total


def test_diversity_is_the_sum_of_divergences_over_ordered_pairs() -> None:
    torch.manual_seed(0)
    weights = torch.randn(5, 3, 4).double().softmax(-1)
    weights[0, 1] = torch.tensor([1.0, 0, 0, 0])
    each = torch.tensor([naive_divergence(w) for w in weights], dtype=torch.float64)
    torch.testing.assert_close(diversity_loss(weights), -each.mean())
    rows = torch.tensor([1.0, 2, 3, 4, 0]).double()
    torch.testing.assert_close(diversity_loss(weights, rows), -(each * rows).sum() / rows.sum())


def test_balance_is_one_when_heads_are_used_alike() -> None:
    assert balance_loss(torch.full((7, 4), 0.25)).item() == pytest.approx(1.0)
    one_head = torch.tensor([[1.0, 0, 0, 0]]).expand(7, -1)
    assert balance_loss(one_head).item() == pytest.approx(4.0)


def test_half_life_is_where_the_weight_halves() -> None:
    for scale in ("log", "linear"):
        op = random_operator(time_scale=scale, modulation=False)
        hours = op.half_lives(op.base_rates())
        for k, life in enumerate(hours.tolist()):
            seconds = torch.tensor([[0, round(life * HOUR * 1000)]])
            op.tau0 = HOUR * 1000.0  # milliseconds, to round less
            weights = op.read(torch.zeros(1, 2, 6).double(), seconds, now=seconds[:, 1]).weights[0, k]
            assert (weights[0] / weights[1]).item() == pytest.approx(0.5, rel=1e-3)
            op.tau0 = float(HOUR)


@pytest.mark.parametrize(
    "switches", [{"time_scale": "Log"}, {"form": "fast"}, {"heads": 0}, {"dim": 0}], ids=lambda given: str(given)
)
def test_switches_that_do_not_exist_are_refused(switches: dict) -> None:
    with pytest.raises(ValueError, match="MARS wants"):
        MARS(**{"dim": 4, **switches})


def test_times_that_are_not_exact_are_refused() -> None:
    with pytest.raises(ValueError, match="times are integers"):
        MARS(4)(torch.randn(1, 3, 4), torch.arange(3.0)[None])


@pytest.mark.parametrize(("form", "scale"), [("dense", "log"), ("dense", "linear"), ("streaming", "log")])
@pytest.mark.parametrize("every", [False, True])
def test_half_precision_has_room_for_years(form: Form, scale: TimeScale, every: bool) -> None:
    torch.manual_seed(0)
    operator = MARS(8, 3, form=form, time_scale=scale)
    states, times = torch.randn(1, 5, 8), torch.tensor([[0, 1000, 90_000, 1_000_000, 2_000_000]])
    later = 8 * YEAR
    now = times + later if every else times[:, -1] + later
    if scale == "linear":  # the gate is told the hours, which half precision rounds
        torch.nn.init.zeros_(operator.time_encoder[0].weight)
    expected = operator(states, times, now=now, every=every)
    for dtype in (torch.float16, torch.bfloat16):
        found = copy.deepcopy(operator).to(dtype)(states.to(dtype), times, now=now, every=every)
        torch.testing.assert_close(found.float(), expected, rtol=0, atol=0.05)


def test_an_operator_that_was_first_used_for_inference_trains() -> None:
    mixture._rule.cache_clear()
    mixture.node_rates.cache_clear()
    operator = MARS(8, 3, form="streaming")
    states, times = torch.randn(2, 5, 8), torch.arange(5).expand(2, -1)
    with torch.inference_mode():
        operator(states, times, every=True)
    operator(states, times, every=True).sum().backward()
    assert operator.raw_rates.grad is not None
    assert torch.isfinite(operator.raw_rates.grad).all()


def test_a_moment_and_an_item_for_each_user_vector() -> None:
    operator, states, times = MARS(8, 2), torch.randn(2, 5, 8), torch.arange(5).expand(2, 5)
    for now in (times[:, 0], times[:, :1], times[:, 1:], times.float()):
        with pytest.raises(ValueError, match=r"now is integers \(2, 5\)"):
            operator(states, times, now=now, every=True)
    with pytest.raises(ValueError, match=r"now is integers \(2,\), .*; found torch.int64 \(2, 5\)"):
        operator(states, times, now=times)
    with pytest.raises(ValueError, match=r"last_items is \(2, 3, 8\), .*; found \(2, 5, 8\)"):
        operator(states, times, last_items=states, every=True, first=2)
    with pytest.raises(ValueError, match=r"last_items is \(2, 8\), .*; found \(2, 1, 8\)"):
        operator(states, times, last_items=states[:, :1])


def test_a_clock_that_tells_nothing_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"readout\.real_time=false does not see"):
        MarsSettings(clock="request", real_time=False).build(8, 8, 3600.0)


@pytest.mark.parametrize("shapes", [((2, 5, 4), (2, 5)), ((2, 5, 8), (2, 4)), ((5, 8), (5,))])
def test_wrong_shapes_are_named(shapes: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    states, times = shapes
    with pytest.raises(ValueError, match=r"states \(B, L, 8\) and times \(B, L\)"):
        MARS(8, 3)(torch.randn(states), torch.zeros(times, dtype=torch.int64))
