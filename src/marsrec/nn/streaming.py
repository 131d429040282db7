r"""MARS summaries without looking back: power-law weights of age as a mixture of fixed exponentials.

In log time a head weighs an event of age x (in units of τ0) by (1 + x)^(-ρ), a mixture of exponentials whose rates s
are the same for all heads and users::

    (1 + x)^(-ρ) ∝ ∫ s^(ρ-1) e^(-s (1 + x)) ds = ∫ e^(ρ v - s (1 + x)) dv        s = e^v
                 ≈ Σ_m c_m(ρ) e^(-s_m x)

So the past of a user is M sums that decay at fixed rates, S_m ← e^(-s_m Δt) S_m + h, and M counts n_m that do the
same; every head is a mixture of them, Z_k = Σ_m c_m(ρ_k) S_m / Σ_m c_m(ρ_k) n_m. An event costs O(M d), however long
the history is. Only `time_scale="log"` has this form: in linear time a head *is* one exponential, at a rate of its own.

The coefficients take two steps. The trapezoidal rule in v has closed-form, positive weights, but its terms are a peak
of width 1 / sqrt(ρ): a step of 0.42 will do for ρ up to 8, and beyond 400 it is 0.035, which makes 835 rates. Each
of its exponentials is then folded onto M rates far apart, by a least-squares fit over all ages up to 30 years that
depends on M alone, and is made once per process.

Ages are measured from the newest event, whose own age only moves the weights of the trapezoidal rule: with z the time
before it over 1 + its age, an event weighs (1 + z)^(-ρ). Beyond ρ = 1,600 that is an exponential but for 2e-4, and so
is (1 + ρ z / 1600)^(-1600), which takes its place: the peak moves, but gets no narrower. What is bounded is the error
of an event's weight relative to the newest event's, whatever the age of the newest. An event whose time lies before
that of an earlier one in its row counts as simultaneous with it.

Shape letters: B users, L positions, Q positions that are read out, K heads, M nodes, F rates of the fine rule, d
dimensions.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.nn.kernels.decay_scan import LEAST, Implementation, decay_scan, mixed
from marsrec.nn.kernels.numeric import widened

NODES = 44
"""Number M of exponentials. An event's weight is off by less than 5e-4 of the newest event's."""

LONGEST = 30 * 365.25 * 24
"""Age up to which the bound holds, in units of τ0: 30 years of hours. Beyond it weights stop falling."""

STEEPEST = 20_000.0
"""Exponents above count as this, a half-life of an eighth of a second: an event a second older weighs 0.4 %."""

_STEP = 0.035
_FINE = -19.0 + _STEP * np.arange(-1, 834)  # v of the fine rule
_FINE_RATES = np.append(0.0, np.exp(_FINE[1:]))  # the first stands for all that are slower: constant over 30 years
_SLOWEST, _FASTEST = 1.4 / LONGEST, 50_000.0
_STEEP, _STRIDES = (8.0, 100.0, 400.0), (12, 4, 2, 1)  # up to these exponents every so many of the fine rule will do
_NARROWEST = 1600.0  # steeper ones are power laws of this exponent and of a shorter unit of time
_AT_ONCE = 1 << 18  # terms that are computed at a time
_BEND = 0.2  # 0 spaces the logarithms of the rates evenly, 1 like Chebyshev's points, dense at both ends

Array = NDArray[np.float64]


@cache
def nodes(count: int = NODES) -> Array:
    """The (M,) rates of decay, per τ0: zero, and the others from about one in 20 years to 14 in a second.

    Examples
    --------
    >>> nodes()[-3:].round()
    array([20320., 32079., 50000.])
    """
    if count < 8:
        raise ValueError(f"the mixture wants at least 8 nodes, got {count}")
    even = np.linspace(-1, 1, count - 1)
    bent = (1 - _BEND) * even + _BEND * np.sin(np.pi / 2 * even)
    rates = np.append(0.0, _SLOWEST * (_FASTEST / _SLOWEST) ** ((bent + 1) / 2))
    rates.flags.writeable = False  # all callers share it
    return rates


@cache
def _folding(count: int) -> Array:
    """(F, M) how each exponential of the fine rule is made of the nodes' exponentials.

    The error counts 1 + s x times: a fast exponential has to vanish at great ages, where many events may lie.
    """
    ages = np.append(0.0, np.geomspace(1e-5, LONGEST, 380))
    slow = np.exp(-ages[:, None] * nodes(count))  # (ages, M)
    folded = []
    for rate in _FINE_RATES:
        importance = 1 + rate * ages
        columns = slow * importance[:, None]
        scale = np.linalg.norm(columns, axis=0)
        folded.append(np.linalg.lstsq(columns / scale, np.exp(-rate * ages) * importance, rcond=1e-7)[0] / scale)
    return np.stack(folded)


def coefficients(rates: Tensor, newest: Tensor, *, count: int = NODES) -> Tensor:
    """Coefficients of the nodes, such that an event y before the newest one weighs Σ_m c_m e^(-s_m y).

    That is ((1 + newest + y) / (1 + newest))^(-ρ): 1 for the newest event itself. With 44 nodes the error is
    below 5e-4 (1 + z)^(-min(ρ, 1)), z = y / (1 + newest), for ρ from 0.03 to 20,000 and all ages up to 30 years. Some
    coefficients are negative; their absolute values sum to less than 6, and beyond 30 years to less than 11.

    Parameters
    ----------
    rates : Tensor (..., K)
        Exponents ρ, positive. Above 20,000 they count as that.
    newest : Tensor (...)
        Age of the newest event in units of τ0, at least 0.
    count : int
        Number M of nodes.

    Returns
    -------
    Tensor (..., K, M)
        Differentiable in `rates`.

    Examples
    --------
    Asked 2 hours after the newest event, with ρ = 1: an event 6 hours older is three times as old, plus one hour.

    >>> mix = coefficients(torch.tensor([1.0]), torch.tensor(2.0))
    >>> weight = mix @ torch.exp(-torch.tensor(nodes()) * 6).float()
    >>> print(f"{weight.item():.3f}")  # (1 + 2) / (1 + 8)
    0.333
    """
    (rates,) = widened(rates)
    with _full_precision(rates):
        mix: Tensor = _Coefficients.apply(rates, newest.to(rates.dtype)[..., None].expand_as(rates), count)  # type: ignore[no-untyped-call]
        return mix


class _Coefficients(torch.autograd.Function):
    """The fine rule and its folding, some exponents at a time: their F terms are not held all at once.

    The slopes are made on the way, from the same terms: with p = softmax(l) and l' = dl/dρ, that of c = p · folding is
    c' = (p l') · folding - (p · l') c.
    """

    @staticmethod
    def forward(ctx: Any, rates: Tensor, newest: Tensor, count: int) -> Tensor:
        exponents, waited = rates.flatten().clamp(min=1e-6, max=STEEPEST), 1 + newest.flatten()
        mix = rates.new_empty(len(exponents), count)
        slopes = torch.empty_like(mix) if ctx.needs_input_grad[0] else None
        for stride, rows in _by_steepness(exponents):
            v, folding = _rule(count, stride, rates.dtype, rates.device)
            rho, step = exponents[rows, None], stride * _STEP  # (N, 1)
            power = rho.clamp(max=_NARROWEST)
            # Measured from the peak at s = ρ / waited, where all terms that matter are small numbers.
            u = v - torch.log(rho / waited[rows, None])  # (N, F)
            s = torch.exp(u)
            s[:, 0] = 0  # it does not decay; see the series below
            terms = power * (u - s)
            # The first stands for the series Σ e^(ρ v) over all v up to its own: e^(ρ v) / (1 - e^(-ρ step)).
            terms[:, :1] -= torch.log(-torch.expm1(-step * power))
            # The softmax divides by the newest event's weight: nothing under- or overflows, and Γ(ρ) cancels.
            terms = terms.softmax(dim=-1)
            mix[rows] = made = terms @ folding
            if slopes is None:
                continue
            # Beyond the narrowest the peak only moves. What all terms share of l' cancels.
            slope = u if stride > 1 else torch.where(rho > _NARROWEST, s.sub_(1).mul_(power / rho), u)
            slope[:, :1] -= step / torch.expm1(step * power)  # the series' own, which vanishes for steep ones
            terms *= slope
            slopes[rows] = terms @ folding - terms.sum(-1, keepdim=True) * made
        if slopes is not None:
            inside = (rates.flatten() > 1e-6) & (rates.flatten() < STEEPEST)
            ctx.save_for_backward(slopes.mul_(inside[:, None]))
        return mix.view(*rates.shape, count)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (slopes,) = ctx.saved_tensors
        return (grad * slopes.view(grad.shape)).sum(-1), None, None


def _by_steepness(exponents: Tensor) -> Iterator[tuple[int, Tensor | slice]]:
    """Which of (N,) exponents go together: every so many of the fine rule, and the rows."""
    kinds = torch.bucketize(exponents, exponents.new_tensor(_STEEP))
    for kind, stride in enumerate(_STRIDES):
        chosen, height = kinds == kind, max(1, _AT_ONCE * stride // len(_FINE))
        if chosen.all():
            yield from ((stride, slice(start, start + height)) for start in range(0, len(exponents), height))
            return
        yield from ((stride, rows) for rows in torch.split(chosen.nonzero()[:, 0], height) if len(rows))


def streaming_average(
    states: Tensor,
    times: Tensor,
    now: Tensor,
    rates: Tensor,
    *,
    first: int = 0,
    tau0: float = 3600.0,
    time_scale: Literal["log", "linear"] = "log",
    count: int = NODES,
    implementation: Implementation = "auto",
) -> Tensor:
    """The summaries Z of MARS at the positions from `first` on, in time and memory linear in L.

    Equals the softmax-weighted sums of `marsrec.nn.mars.MARS` up to the error of the mixture.

    Parameters
    ----------
    states : Tensor (B, L, d)
        What is averaged.
    times : Tensor (B, L)
        Integers; one that goes back within a row counts as the latest before it.
    now : Tensor (B, Q)
        From when ages are measured at each position, not before the latest event up to it; if it is, that event's time.
    rates : Tensor (B, Q, K)
        Exponents ρ, positive.
    first : int
        First position that is read out: Q = L - first. Position q sees the events up to first + q.
    tau0 : float
        One hour, in the unit of the times.
    time_scale : {"log"}
        "linear" is refused.
    count : int
        Number M of nodes.
    implementation : {"auto", "reference", "cpu"}
        That of `decay_scan`.

    Returns
    -------
    Tensor (B, Q, K, d)
        Differentiable in `states` and `rates`.

    Examples
    --------
    Two events an hour apart, with ρ = 1: the older one has half of the weight of the newer one.

    >>> states, times = torch.tensor([[[0.0], [3.0]]]), torch.tensor([[0, 3600]])
    >>> streaming_average(states, times, times, torch.ones(1, 2, 1)).flatten().round(decimals=2)
    tensor([0., 2.])
    """
    _check(time_scale)
    times = _raised(times)
    elapsed = times.diff(dim=1, prepend=times[:, :1])  # exact; padding may have any time
    newest = _hours(now - times[:, first:], tau0, rates.dtype)  # (B, Q)
    mix = coefficients(rates, newest, count=count)  # (B, Q, K, M)
    decays = _decays(elapsed, tau0, count, mix.dtype)  # (B, L, M)
    states, decays, mix = widened(states, decays, mix)
    with _full_precision(states):
        return decay_scan(states, decays, mix, first, implementation=implementation)


@dataclass(frozen=True)
class Past:
    """All that the summaries need of the past of B users.

    Examples
    --------
    >>> past = start(torch.zeros(1, 1))
    >>> for hour, h in enumerate([0.0, 3.0]):
    ...     past = extend(past, torch.tensor([[[h]]]), torch.tensor([[3600 * hour]]))
    >>> average(past, torch.tensor([[1.0]]), past.time).round(decimals=2)
    tensor([[[2.]]])
    """

    sums: Tensor
    """(B, M, d) decaying sums of the states, as of `time`."""
    counts: Tensor
    """(B, M) decaying numbers of events, as of `time`; the first node, which does not decay, counts them all."""
    time: Tensor
    """(B,) time of the newest event, int64; means nothing before the first event."""
    tau0: float = 3600.0
    """One hour, in the unit of `time`."""


def start(zeros: Tensor, *, tau0: float = 3600.0, count: int = NODES) -> Past:
    """The past of users without events, from (B, d) zeros of the states' kind."""
    (zeros,) = widened(zeros)  # half precision counts to 2,048 only
    sums = zeros[:, None].repeat(1, count, 1)
    return Past(sums, sums[..., 0].clone(), torch.zeros(len(zeros), dtype=torch.int64, device=zeros.device), tau0)


def extend(past: Past, states: Tensor, times: Tensor) -> Past:
    """Add events with (B, L, d) states at (B, L) times, at a cost that does not depend on how many came before.

    One that is before the newest event counts as simultaneous with it.
    """
    if states.shape[1] == 0:
        return past
    empty = past.counts[:, 0] == 0
    times = _raised(torch.where(empty[:, None], times, torch.maximum(times, past.time[:, None])))
    latest = times[:, -1]
    elapsed = torch.cat([torch.where(empty, 0, latest - past.time)[:, None], latest[:, None] - times], dim=1)
    decays = _decays(elapsed, past.tau0, past.counts.shape[1], past.sums.dtype)  # (B, 1 + L, M)
    before, new = decays[:, 0], decays[:, 1:]
    with _full_precision(states):
        sums = before[..., None] * past.sums + new.transpose(1, 2) @ states.to(new.dtype)
    return replace(past, sums=sums, counts=before * past.counts + new.sum(1), time=latest)


def average(past: Past, rates: Tensor, now: Tensor) -> Tensor:
    """Summaries Z for exponents (B, K) at the moments `now` (B,), not before the newest event: (B, K, d).

    The past stays as of its newest event; `now` may go on as long as no event comes. Without events they are zeros.
    """
    newest = _hours(now - past.time, past.tau0, rates.dtype)
    mix = coefficients(rates, newest, count=past.counts.shape[1])  # (B, K, M)
    with _full_precision(mix):
        return mixed(mix, past.sums, past.counts[..., None])


def mixture_weights(
    times: Tensor, now: Tensor, lengths: Tensor, rates: Tensor, *, tau0: float = 3600.0, count: int = NODES
) -> Tensor:
    """Weights (B, K, L) of the events of each user in the averages of this form, for exponents (B, K) at `now` (B,)."""
    times = _raised(times)
    latest = times.gather(1, lengths[:, None] - 1)
    mix = coefficients(rates, _hours(now - latest[:, 0], tau0, rates.dtype), count=count)
    decays = _decays(latest - times, tau0, count, mix.dtype).transpose(1, 2)  # (B, M, L)
    inside = (torch.arange(times.shape[1], device=times.device) < lengths[:, None])[:, None]
    with _full_precision(mix):
        weights = (mix @ decays) * inside
    weights = torch.where(weights.sum(-1, keepdim=True) < LEAST, decays[:, -1:] * inside, weights)  # as in `mixed`
    return weights / weights.sum(-1, keepdim=True)


def _raised(times: Tensor) -> Tensor:
    """Times that never decrease along a row, as sums that decay need them; `ties="recbole"` orders by rounded ones."""
    return times.cummax(dim=1).values


def _decays(elapsed: Tensor, tau0: float, count: int, dtype: torch.dtype) -> Tensor:
    """e^(-s_m Δt): (...) integers -> (..., M)."""
    hours = _hours(elapsed, tau0, dtype).to(dtype)
    rates = _node_rates(count, dtype, elapsed.device)
    # Below e^-60 nothing is left of a sum; denormal numbers would only be slow.
    return torch.exp((hours[..., None] * -rates).clamp_(min=-60))


def _hours(elapsed: Tensor, tau0: float, dtype: torch.dtype) -> Tensor:
    """Integers in units of τ0. Half precision has no room for the seconds of a day."""
    return elapsed.clamp(min=0).to(torch.promote_types(dtype, torch.float32)) / tau0


@cache
def _rule(count: int, stride: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every so many of the fine rule: v (F,), and how its exponentials fold (F, M)."""
    return _shared(_FINE[::stride], dtype, device), _shared(_folding(count)[::stride], dtype, device)


@cache
def _node_rates(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _shared(nodes(count), dtype, device)


def _shared(values: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # made while evaluating, they serve in training as well
        return torch.tensor(values, dtype=dtype, device=device)


def _full_precision(tensor: Tensor) -> torch.autocast:
    """Autocast would compute the mixture in half precision, in which its terms do not cancel."""
    return torch.autocast(tensor.device.type, enabled=False)


def _check(time_scale: str) -> None:
    if time_scale != "log":
        raise ValueError(
            f'the streaming form needs time_scale="log", got "{time_scale}": in linear time every head decays at a '
            "rate of its own, which changes with the user, and no fixed set of sums serves all of them"
        )
