r"""Power laws of age as mixtures of fixed exponentials, on which the streaming form of MARS rests.

In log time a head weighs an event of age x (in units of τ0) by (1 + x)^(-ρ), a mixture of exponentials whose rates s
are the same for all heads and users::

    (1 + x)^(-ρ) ∝ ∫ s^(ρ-1) e^(-s (1 + x)) ds = ∫ e^(ρ v - s (1 + x)) dv        s = e^v
                 ≈ Σ_m c_m(ρ) e^(-s_m x)

The coefficients take two steps. The trapezoidal rule in v has closed-form, positive weights, but its terms are a peak
of width 1 / sqrt(ρ): a step of 0.42 will do for ρ up to 8, and beyond 400 it is 0.035, which makes 835 rates. Each
of its exponentials is then folded onto M rates far apart, by a least-squares fit over all ages up to 30 years that
depends on M alone, and is made once per process.

Ages are measured from the newest event, whose own age only moves the weights of the trapezoidal rule: with z the time
before it over 1 + its age, an event weighs (1 + z)^(-ρ). Beyond ρ = 1,600 that is an exponential but for 2e-4, and so
is (1 + ρ z / 1600)^(-1600), which takes its place: the peak moves, but gets no narrower. What is bounded is the error
of an event's weight relative to the newest event's, whatever the age of the newest.

Shape letters: K heads, M nodes, F rates of the fine rule, N exponents at a time.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.threads import one_thread
from marsrec.nn.kernels.numeric import widened

NODES = 44
"""Number M of exponentials. An event's weight is off by less than 5e-4 of the newest event's."""

LONGEST = 30 * 365.25 * 24
"""Age up to which the bound holds, in units of τ0: 30 years of hours. Beyond it weights stop falling."""

STEEPEST = 20_000.0
"""Exponents above count as this, a half-life of an eighth of a second: an event a second older weighs 0.4 %."""

GENTLE = 100.0
"""Up to this exponent every fourth term of the fine rule will do; steeper ones cost two to four times as much."""

_STEP = 0.035
_FINE = -19.0 + _STEP * np.arange(-1, 834)  # v of the fine rule
_FINE_RATES = np.append(0.0, np.exp(_FINE[1:]))  # the first stands for all that are slower: constant over 30 years
_SLOWEST, _FASTEST = 1.4 / LONGEST, 50_000.0
_STEEP, _STRIDES = (8.0, GENTLE, 400.0), (12, 4, 2, 1)  # up to these exponents every so many of the fine rule will do
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
    with one_thread():  # hundreds of small systems
        for rate in _FINE_RATES:
            importance = 1 + rate * ages
            columns = slow * importance[:, None]
            scale = np.linalg.norm(columns, axis=0)
            scaled, wanted = torch.from_numpy(columns / scale), torch.from_numpy(np.exp(-rate * ages) * importance)
            solved = torch.linalg.lstsq(scaled, wanted[:, None], rcond=1e-7, driver="gelsd").solution[:, 0]
            folded.append(solved.numpy() / scale)
    return np.stack(folded)


def coefficients(rates: Tensor, newest: Tensor, *, count: int = NODES) -> Tensor:
    """Coefficients of the nodes, such that an event y before the newest one weighs Σ_m c_m e^(-s_m y).

    That is ((1 + newest + y) / (1 + newest))^(-ρ): 1 for the newest event itself. With 44 nodes the error is
    below 5e-4 (1 + z)^(-min(ρ, 1)), z = y / (1 + newest), for ρ up to 20,000 and all ages up to 30 years. Some
    coefficients are negative; their absolute values sum to less than 6, and beyond 30 years to less than 11.

    Parameters
    ----------
    rates : Tensor (..., K)
        Exponents ρ, positive. Above 20,000 they count as that, below 1e-6 as that, with slopes of 0.
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
    with full_precision(rates):
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


def coefficients_of_one(rates: NDArray[np.float32], newest: np.float32, count: int = NODES) -> NDArray[np.float32]:
    """The same for the (K,) exponents of one user, (K, M), in numpy: a live session asks for nothing else.

    Examples
    --------
    >>> one, all_ = coefficients_of_one(np.float32([0.5, 90.0]), np.float32(2.0)), torch.tensor([0.5, 90.0])
    >>> bool(np.allclose(one, coefficients(all_, torch.tensor(2.0)).numpy(), atol=2e-6))
    True
    """
    exponents = np.clip(rates, np.float32(1e-6), np.float32(STEEPEST))
    mix = np.empty((len(rates), count), np.float32)
    kinds = np.searchsorted(_STEEP, exponents)
    for kind in set(kinds.tolist()):
        stride, rows = _STRIDES[kind], kinds == kind
        v, folding = _rule_of_one(count, stride)
        rho, step = exponents[rows, None], np.float32(stride * _STEP)
        power = np.minimum(rho, np.float32(_NARROWEST))
        u = v - np.log(rho / (1 + newest))
        s = np.exp(u)
        s[:, 0] = 0
        terms = power * (u - s)
        terms[:, :1] -= np.log(-np.expm1(-step * power))
        terms = np.exp(terms - terms.max(axis=1, keepdims=True))
        mix[rows] = (terms / terms.sum(axis=1, keepdims=True)) @ folding
    return mix


@cache
def _rule_of_one(count: int, stride: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    return _FINE[::stride].astype(np.float32), np.ascontiguousarray(_folding(count)[::stride].astype(np.float32))


def _by_steepness(exponents: Tensor) -> Iterator[tuple[int, Tensor | slice]]:
    """Which of (N,) exponents go together: every so many of the fine rule, and the rows."""
    kinds = torch.bucketize(exponents, exponents.new_tensor(_STEEP))
    for kind, stride in enumerate(_STRIDES):
        chosen, height = kinds == kind, max(1, _AT_ONCE * stride // len(_FINE))
        if chosen.all():
            yield from ((stride, slice(start, start + height)) for start in range(0, len(exponents), height))
            return
        yield from ((stride, rows) for rows in torch.split(chosen.nonzero()[:, 0], height) if len(rows))


@cache
def _rule(count: int, stride: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Every so many of the fine rule: v (F,), and how its exponentials fold (F, M)."""
    return _shared(_FINE[::stride], dtype, device), _shared(_folding(count)[::stride], dtype, device)


@cache
def node_rates(count: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """`nodes` as a tensor."""
    return _shared(nodes(count), dtype, device)


def _shared(values: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):  # made while evaluating, they serve in training as well
        return torch.tensor(values, dtype=dtype, device=device)


def full_precision(tensor: Tensor) -> torch.autocast:
    """Autocast would compute the mixture in half precision, in which its terms do not cancel."""
    return torch.autocast(tensor.device.type, enabled=False)
