"""MARS summaries without looking back: a user's whole past is a few sums that decay at fixed rates.

In log time every head is a mixture of the same M exponentials of age (see `marsrec.nn.mixture`). So the past of a user
is M sums, S_m ← e^(-s_m Δt) S_m + h, and M counts n_m that decay likewise; a head is Z_k = Σ_m c_m(ρ_k) S_m / Σ_m
c_m(ρ_k) n_m. An event costs O(M d), however long the history is. Only `time_scale="log"` has this form: in linear time
a head *is* one exponential, at a rate of its own. An event whose time lies before that of an earlier one in its row
counts as simultaneous with it.

Shape letters: B users, L positions, Q positions that are read out, K heads, M nodes, d dimensions.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from marsrec.nn.kernels.decay_scan import LEAST, decay_scan, mixed
from marsrec.nn.kernels.decayed_average import check_shapes
from marsrec.nn.kernels.numeric import widened
from marsrec.nn.mixture import NODES, coefficients, full_precision, node_rates


def streaming_average(
    states: Tensor,
    times: Tensor,
    now: Tensor,
    rates: Tensor,
    *,
    first: int = 0,
    tau0: float = 3600.0,
    count: int = NODES,
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
        Moment from which ages are measured at each position; one before the latest event up to it counts as that time.
    rates : Tensor (B, Q, K)
        Exponents ρ, positive.
    first : int
        First position that is read out: Q = L - first. Position q sees the events up to first + q.
    tau0 : float
        One hour, in the unit of the times.
    count : int
        Number M of nodes.

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
    check_shapes(states, times, now, rates, first)
    if times.is_floating_point() or now.is_floating_point():
        raise ValueError(f"times and now are integers, in which moments are exact; found {times.dtype} and {now.dtype}")
    times = _raised(times)
    elapsed = times.diff(dim=1, prepend=times[:, :1])  # exact; padding may have any time
    newest = _hours(now - times[:, first:], tau0, rates.dtype)  # (B, Q)
    mix = coefficients(rates, newest, count=count)  # (B, Q, K, M)
    decays = _decays(elapsed, tau0, count, mix.dtype)  # (B, L, M)
    states, decays, mix = widened(states, decays, mix)
    with full_precision(states):
        return decay_scan(states, decays, mix, first)


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
    B, _, d = past.sums.shape
    if states.ndim != 3 or states.shape != (B, states.shape[1], d) or times.shape != states.shape[:2]:
        found = f"{tuple(states.shape)} and {tuple(times.shape)}"
        raise ValueError(f"the past of {B} users takes states ({B}, L, {d}) and times ({B}, L); found {found}")
    if states.shape[1] == 0:
        return past
    empty = past.counts[:, 0] == 0
    times = _raised(torch.where(empty[:, None], times, torch.maximum(times, past.time[:, None])))
    latest = times[:, -1]
    elapsed = torch.cat([torch.where(empty, 0, latest - past.time)[:, None], latest[:, None] - times], dim=1)
    decays = _decays(elapsed, past.tau0, past.counts.shape[1], past.sums.dtype)  # (B, 1 + L, M)
    before, new = decays[:, 0], decays[:, 1:]
    with full_precision(states):
        sums = before[..., None] * past.sums + new.transpose(1, 2) @ states.to(new.dtype)
    return replace(past, sums=sums, counts=before * past.counts + new.sum(1), time=latest)


def average(past: Past, rates: Tensor, now: Tensor) -> Tensor:
    """Summaries Z for exponents (B, K) at the moments `now` (B,), not before the newest event: (B, K, d).

    The past stays as of its newest event; `now` may go on as long as no event comes. Without events they are zeros.
    """
    B = len(past.time)
    if rates.ndim != 2 or len(rates) != B or now.shape != (B,):
        found = f"{tuple(rates.shape)} and {tuple(now.shape)}"
        raise ValueError(f"the past of {B} users is read with rates ({B}, K) and now ({B},); found {found}")
    newest = _hours(now - past.time, past.tau0, rates.dtype)
    mix = coefficients(rates, newest, count=past.counts.shape[1])  # (B, K, M)
    with full_precision(mix):
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
    with full_precision(mix):
        weights = (mix @ decays) * inside
    weights = torch.where(weights.sum(-1, keepdim=True) < LEAST, decays[:, -1:] * inside, weights)  # as in `mixed`
    return weights / weights.sum(-1, keepdim=True)


def _raised(times: Tensor) -> Tensor:
    """Times that never decrease along a row, as sums that decay need them; `ties="recbole"` orders by rounded ones."""
    return times.cummax(dim=1).values


def _decays(elapsed: Tensor, tau0: float, count: int, dtype: torch.dtype) -> Tensor:
    """e^(-s_m Δt): (...) integers -> (..., M)."""
    hours = _hours(elapsed, tau0, dtype).to(dtype)
    rates = node_rates(count, dtype, elapsed.device)
    # Below e^-60 nothing is left of a sum; denormal numbers would only be slow.
    return torch.exp((hours[..., None] * -rates).clamp_(min=-60))


def _hours(elapsed: Tensor, tau0: float, dtype: torch.dtype) -> Tensor:
    """Integers in units of τ0. Half precision has no room for the seconds of a day."""
    return elapsed.clamp(min=0).to(torch.promote_types(dtype, torch.float32)) / tau0
