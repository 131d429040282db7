"""Averages of states that weigh events by age, at every position of a history and at K rates each.

On the CPU the weights are never all there: a few rows and positions at a time fit into the cache, are computed by
numba, multiplied with the states by torch, and computed again in the backward pass.

Shapes: B histories, L events, Q positions that are read out, K heads, d width.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import NEGLIGIBLE, ZERO, Implementation, exp, fits, log1p

TimeScale = Literal["log", "linear"]

CHUNK = 32  # positions at a time: they need no events after the last of them, which saves up to half of the work
BUFFER = 1 << 18  # weights at a time, as far as one row and CHUNK positions do not need more


def decayed_average(
    states: Tensor,
    times: Tensor,
    now: Tensor,
    rates: Tensor,
    *,
    first: int = 0,
    tau0: float = 3600.0,
    time_scale: TimeScale = "log",
    implementation: Implementation = "auto",
) -> Tensor:
    """Average the states of all events up to a position with weights softmax(-rate · age), for K rates.

    The age of an event is `log(1 + (now - time) / tau0)`, or `(now - time) / tau0` on the linear scale; an event after
    `now` has age 0.

    Parameters
    ----------
    states : Tensor (B, L, d)
        What is averaged.
    times : Tensor (B, L)
        Times of the events, in any order; integers are subtracted exactly.
    now : Tensor (B, Q)
        Moment from which ages are measured at each of the positions `first` ... L - 1.
    rates : Tensor (B, Q, K)
        How fast weights decay with age, not negative.
    first : int
        The position that is read out first: Q = L - first.
    tau0 : float
        Unit of the ages, in the unit of the times.
    time_scale : {"log", "linear"}
        Whether ages are compressed.
    implementation : {"auto", "reference"}
        "auto" is the kernel for float32 on the CPU. Gradients flow to `states` and `rates`.

    Returns
    -------
    Tensor (B, Q, K, d)
        The averages.

    Examples
    --------
    An hour ago counts half as much as now at rate 1, and as much at rate 0:

    >>> states, times = torch.tensor([[[3.0], [6.0]]]), torch.tensor([[0, 3600]])
    >>> decayed_average(states, times, times, torch.tensor([[[0.0, 1.0]]]).expand(1, 2, 2)).squeeze()
    tensor([[3.0000, 3.0000],
            [4.5000, 5.0000]])
    """
    return _averages_and_totals(states, times, now, rates, first, tau0, time_scale, implementation)[0]


def decayed_average_and_total(
    states: Tensor,
    times: Tensor,
    now: Tensor,
    rates: Tensor,
    *,
    first: int = 0,
    tau0: float = 3600.0,
    time_scale: TimeScale = "log",
    implementation: Implementation = "auto",
) -> tuple[Tensor, Tensor]:
    """The same averages, and the logarithm of what they were divided by: the sum of all weights exp(-rate · age).

    Returns
    -------
    averages : Tensor (B, Q, K, d)
    totals : Tensor (B, Q, K)
        Gradients flow to `rates` through them, too.

    Examples
    --------
    >>> states, times = torch.tensor([[[3.0], [6.0]]]), torch.tensor([[0, 3600]])
    >>> _, totals = decayed_average_and_total(states, times, times, torch.ones(1, 2, 1))
    >>> totals.exp().flatten()
    tensor([1.0000, 1.5000])
    """
    averages, totals = _averages_and_totals(states, times, now, rates, first, tau0, time_scale, implementation)
    newest = times.cummax(dim=1).values[:, first:]
    wide = torch.promote_types(totals.dtype, torch.float32)  # in which seconds of years have room
    youngest = (now - newest).clamp(min=0).to(wide) / tau0
    if time_scale == "log":
        youngest = torch.log1p(youngest)
    return averages, totals - (rates * youngest[..., None]).to(totals.dtype)


def _averages_and_totals(
    states: Tensor,
    times: Tensor,
    now: Tensor,
    rates: Tensor,
    first: int,
    tau0: float,
    time_scale: TimeScale,
    implementation: Implementation,
) -> tuple[Tensor, Tensor]:
    """Averages, and logarithms of the totals where the youngest event weighs 1."""
    check_shapes(states, times, now, rates, first)
    if implementation == "reference" or not fits(states, rates):
        return _reference(states, times, now, rates, first, tau0, time_scale == "log")
    both: tuple[Tensor, Tensor] = _DecayedAverage.apply(states, times, now, rates, first, tau0, time_scale == "log")  # type: ignore[no-untyped-call]
    return both


def check_shapes(states: Tensor, times: Tensor, now: Tensor, rates: Tensor, first: int) -> None:
    """Refuse what does not fit together; compiled loops would read beyond an array's end."""
    parts = (states, times, now, rates)
    fits_together = states.ndim == 3 and rates.ndim == 3 and 0 <= first <= states.shape[1]
    if fits_together:
        (B, L, _), K = states.shape, rates.shape[2]
        shapes = [(B, L), (B, L - first), (B, L - first, K)]
        fits_together = [tuple(part.shape) for part in parts[1:]] == shapes
    if not fits_together:
        raise ValueError(
            f"averages by age want states (B, L, d), times (B, L), now (B, Q) and rates (B, Q, K), Q = L - {first}; "
            f"found {', '.join(str(tuple(part.shape)) for part in parts)}"
        )


def _reference(
    states: Tensor, times: Tensor, now: Tensor, rates: Tensor, first: int, tau0: float, logarithmic: bool
) -> tuple[Tensor, Tensor]:
    B, Q, K = rates.shape
    parts, totals = [states.new_empty(B, 0, K, states.shape[2])], [rates.new_empty(B, 0, K)]
    for start in range(0, Q, CHUNK):
        chunk = slice(start, min(start + CHUNK, Q))
        past = first + chunk.stop
        wide = torch.promote_types(rates.dtype, torch.float32)  # in which seconds of years have room
        elapsed = (now[:, chunk, None] - times[:, None, :past]).clamp(min=0).to(wide) / tau0
        ages = torch.log1p(elapsed) if logarithmic else elapsed  # (B, C, past)
        order = torch.arange(past, device=states.device)
        hidden = order > order[first + start :, None]  # (C, past)
        ages = ages - ages.masked_fill(hidden, torch.inf).amin(dim=-1, keepdim=True)  # the youngest event's is 0
        logits = -rates[:, chunk, :, None].to(wide) * ages[:, :, None]  # (B, C, K, past)
        logits = logits.masked_fill(hidden[:, None], -torch.inf)
        weights = logits.softmax(dim=-1).to(rates.dtype)
        totals.append(logits.logsumexp(dim=-1).to(rates.dtype))
        parts.append(
            torch.bmm(weights.flatten(1, 2), states[:, :past]).view(B, past - first - start, K, states.shape[2])
        )
    return torch.cat(parts, dim=1), torch.cat(totals, dim=1)


class _DecayedAverage(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        times: Tensor,
        now: Tensor,
        rates: Tensor,
        first: int,
        tau0: float,
        logarithmic: bool,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        states, times, now, rates = (part.contiguous() for part in (states, times, now, rates))
        ctx.save_for_backward(states, times, now, rates)
        ctx.options = first, tau0, logarithmic
        (B, L, d), (Q, K) = states.shape, rates.shape[1:]
        averages = states.new_empty(B, Q, K, d)
        buffer, scale = states.new_empty(_buffer_size(B, L, Q, K)), torch.empty_like(rates)
        with like_torch():
            inputs = *_arrays(times, now, rates, tau0), logarithmic, scale.numpy()
            for rows, chunk, past in _chunks(B, Q, K, first):
                rate = rates[rows, chunk]  # (R, C, K)
                weights = buffer[: rate.numel() * past].view(*rate.shape, past)  # (R, C, K, past)
                _weigh(rows.start, chunk.start, weights.numpy(), *inputs)
                summed = torch.bmm(weights.flatten(1, 2), states[rows, :past])  # (R, C · K, d)
                torch.mul(summed.view(*rate.shape, d), scale[rows, chunk, :, None], out=averages[rows, chunk])
        return averages, -scale.log()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor | None, grad_totals: Tensor | None) -> tuple[Tensor | None, ...]:
        states, times, now, rates = ctx.saved_tensors
        first, tau0, logarithmic = ctx.options
        grad = states.new_zeros(*rates.shape, states.shape[2]) if grad is None else grad.contiguous()
        grad_totals = torch.zeros_like(rates) if grad_totals is None else grad_totals.contiguous()
        (B, L, _), (Q, K) = states.shape, rates.shape[1:]
        grad_states, grad_rates, scale = torch.zeros_like(states), torch.empty_like(rates), torch.empty_like(rates)
        buffers = states.new_empty(2, _buffer_size(B, L, Q, K))
        with like_torch():
            inputs = *_arrays(times, now, rates, tau0), logarithmic, scale.numpy(), grad_rates.numpy()
            inputs = *inputs, grad_totals.numpy()
            for rows, chunk, past in _chunks(B, Q, K, first):
                rate, state = rates[rows, chunk], states[rows, :past]  # (R, C, K), (R, past, d)
                weights, slopes = (buffer[: rate.numel() * past].view(*rate.shape, past) for buffer in buffers)
                summed = grad[rows, chunk].flatten(1, 2)  # (R, C · K, d)
                torch.bmm(summed, state.mT, out=slopes.flatten(1, 2))
                _weigh_backward(rows.start, chunk.start, weights.numpy(), slopes.numpy(), *inputs)
                scaled = summed * scale[rows, chunk].flatten(1)[..., None]
                grad_states[rows, :past] += torch.bmm(weights.flatten(1, 2).mT, scaled)
        return grad_states, None, None, grad_rates, None, None, None


def _chunks(B: int, Q: int, K: int, first: int) -> Iterator[tuple[slice, slice, int]]:
    """Rows, positions counted from `first`, and the number of events up to the last of these positions."""
    size = -(-Q // max(1, -(-Q // CHUNK)))  # chunks of about the same size
    for start in range(0, Q, max(1, size)):
        stop = min(start + size, Q)
        past = first + stop
        height = max(1, BUFFER // ((stop - start) * K * past))
        for row in range(0, B, height):
            yield slice(row, min(row + height, B)), slice(start, stop), past


def _buffer_size(B: int, L: int, Q: int, K: int) -> int:
    largest = min(CHUNK, Q) * K * L
    return min(max(BUFFER, largest), B * largest)


def _arrays(times: Tensor, now: Tensor, rates: Tensor, tau0: float) -> tuple[Any, ...]:
    rate = rates.detach().numpy()
    return times.numpy(), now.numpy(), rate, rate.dtype.type(tau0)


@kernel(parallel=False)
def _ages(times: Any, now: Any, unit: Any, logarithmic: bool, ages: Any) -> None:
    """Ages of events relative to the youngest one's. The softmax is the same, and its largest exponent is 0."""
    newest = times[0]
    for j in range(len(ages)):
        newest = max(newest, times[j])
        ages[j] = max(now - times[j], 0)
    youngest = ages.dtype.type(max(now - newest, 0)) / unit
    if logarithmic:
        youngest = log1p(youngest)
        for j in range(len(ages)):
            ages[j] = log1p(ages[j] / unit) - youngest
    else:
        for j in range(len(ages)):
            ages[j] = ages[j] / unit - youngest


@kernel()
def _weigh(
    row: int, start: int, weights: Any, times: Any, now: Any, rates: Any, unit: Any, logarithmic: bool, scale: Any
) -> None:
    """Weights (R, C, K, past) from `row` and position `start` on; `scale` (B, Q, K) times them is the softmax."""
    R, C, K, past = weights.shape
    for index in prange(R * C):
        r, c = index // C, index % C
        b, q = row + r, start + c
        ages = np.empty(past - C + c + 1, weights.dtype)  # events after the position are hidden
        _ages(times[b], now[b, q], unit, logarithmic, ages)
        for k in range(K):
            weight, rate = weights[r, c, k], rates[b, q, k]
            total = ZERO
            for j in range(len(ages)):
                w = exp(-rate * ages[j])
                weight[j] = w
                total += w
            weight[len(ages) :] = 0
            scale[b, q, k] = 1 / max(total, NEGLIGIBLE)  # the youngest event's age may round to more than 0


@kernel()
def _weigh_backward(
    row: int,
    start: int,
    weights: Any,
    slopes: Any,
    times: Any,
    now: Any,
    rates: Any,
    unit: Any,
    logarithmic: bool,
    scale: Any,
    grad_rates: Any,
    grad_totals: Any,
) -> None:
    """The weights again, and the gradient of the rates from the `slopes` of the loss by the softmax (R, C, K, past).

    It is the covariance of ages and slopes under the weights, negative; and of the totals the mean age, negative.
    """
    R, C, K, past = weights.shape
    for index in prange(R * C):
        r, c = index // C, index % C
        b, q = row + r, start + c
        ages = np.empty(past - C + c + 1, weights.dtype)
        _ages(times[b], now[b, q], unit, logarithmic, ages)
        for k in range(K):
            weight, slope, rate = weights[r, c, k], slopes[r, c, k], rates[b, q, k]
            total = ZERO
            age, steep, both = total, total, total
            for j in range(len(ages)):
                w = exp(-rate * ages[j])
                weight[j] = w
                total += w
                age += w * ages[j]
                steep += w * slope[j]
                both += w * ages[j] * slope[j]
            weight[len(ages) :] = 0
            total = max(total, NEGLIGIBLE)
            scale[b, q, k] = 1 / total
            grad_rates[b, q, k] = (age / total * steep - both) / total - grad_totals[b, q, k] * age / total
