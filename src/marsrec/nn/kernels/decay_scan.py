"""Averages of states that decay at M rates, read out by K heads: a torch reference and a numba kernel for the CPU.

All heads share one recurrence, and each mixes the M decaying sums in its own way::

    S_t = a_t · S_{t-1} + h_t        n_t = a_t · n_{t-1} + 1        S_0 = 0, n_0 = 0
    Z_t = Σ_m c_t,m S_t,m / Σ_m c_t,m n_t,m

The coefficients c give the newest event a weight of about 1, and so a total of at least 1. But some are negative, and
the errors of a mixture add up over a crowd of events. Where they leave a total below `LEAST`, the mixture says nothing
any more, and Z is the average by the last rate alone, the fastest: that of the newest events. Dividing by a bound
instead would blow the errors up.

The decays a_t are data, so the gradient needs no stored states: that of the coefficients c follows from running the
recurrence again, that of the states h from running it backwards over the gradients. Neither pass keeps more than the
M sums of one position, which stay in the L1 cache (44 sums × 64 dimensions are 11 kB in float32).

Shapes: B rows, L positions, Q = L - first positions that are read out, K heads, M rates, d dimensions.
"""

from typing import Any

import numpy as np
import torch
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import NEGLIGIBLE, ONE, ZERO, Array, Implementation, array, fits, widened

LEAST = 0.5
"""A total weight below is an error of the mixture: the newest event alone has 1."""


def decay_scan(
    states: Tensor, decays: Tensor, coefficients: Tensor, first: int = 0, *, implementation: Implementation = "auto"
) -> Tensor:
    """Run the recurrence and read it out at the positions from `first` on.

    Differentiable in `states` and `coefficients`, once. Time is linear in L, and no tensor holds the M sums of more
    than one position of a row. A result does not depend on the number of threads.

    Parameters
    ----------
    states : Tensor (B, L, d)
        What is averaged.
    decays : Tensor (B, L, M)
        By how much the sums shrink from the position before to this one, between 0 and 1; the last of them shrinks
        fastest. They get no gradient.
    coefficients : Tensor (B, Q, K, M)
        How each head mixes the M sums at each position that is read out, such that the newest event weighs about 1.
    first : int
        First position that is read out; the earlier ones are only summed up.
    implementation : {"auto", "reference"}
        "auto" is the numba kernel for float32 on the CPU and the reference elsewhere.

    Returns
    -------
    Tensor (B, Q, K, d)
        The averages Z.

    Examples
    --------
    One sum that keeps half of itself at each step: events at 0, 1 and 2 weigh 1, 2 and 4.

    >>> steps, ones = torch.arange(3.0)[None, :, None], torch.ones(1, 3, 1)
    >>> decay_scan(steps, 0.5 * ones, ones[..., None]).flatten()
    tensor([0.0000, 0.6667, 1.4286])
    """
    if (
        not 0 <= first <= states.shape[1]
        or decays.shape[:2] != states.shape[:2]
        or coefficients.shape[:2] != states[:, first:].shape[:2]
        or coefficients.shape[3:] != decays.shape[2:]
    ):
        raise ValueError(
            "decay_scan wants states (B, L, d), decays (B, L, M) and coefficients (B, L - first, K, M), got "
            f"{tuple(states.shape)}, {tuple(decays.shape)} and {tuple(coefficients.shape)} with first={first}"
        )
    states, decays, coefficients = widened(states, decays, coefficients)
    if implementation == "reference" or not fits(states, decays, coefficients):
        return reference(states, decays, coefficients, first)
    averages: Tensor = _DecayScan.apply(states, decays, coefficients, first)  # type: ignore[no-untyped-call]
    return averages


def reference(states: Tensor, decays: Tensor, coefficients: Tensor, first: int = 0) -> Tensor:
    """The recurrence as it is written above, a position at a time."""
    (rows, length, width), (heads, nodes) = states.shape, coefficients.shape[2:]
    sums, counts = states.new_zeros(rows, nodes, width), states.new_zeros(rows, nodes, 1)
    averages = []
    for t in range(length):
        decay = decays[:, t, :, None]  # (B, M, 1)
        sums, counts = decay * sums + states[:, t, None], decay * counts + 1
        if t >= first:
            averages.append(mixed(coefficients[:, t - first], sums, counts))
    return torch.stack(averages, dim=1) if averages else states.new_zeros(rows, 0, heads, width)


def mixed(mix: Tensor, sums: Tensor, counts: Tensor) -> Tensor:
    """Averages (B, K, d) by coefficients (B, K, M) of sums (B, M, d) and counts (B, M, 1); zeros without events."""
    total = mix @ counts  # (B, K, 1)
    lost = total < LEAST
    newest = sums[:, -1:] / counts[:, -1:].clamp(min=1)
    return torch.where(lost, newest, (mix @ sums) / torch.where(lost, 1, total))


class _DecayScan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, decays: Tensor, coefficients: Tensor, first: int) -> Tensor:
        averages = states.new_empty(*coefficients.shape[:3], states.shape[2])
        shares = torch.empty_like(coefficients, memory_format=torch.contiguous_format)
        totals = states.new_empty(coefficients.shape[:3])
        with like_torch():
            _forward(
                array(states),
                array(decays),
                array(coefficients),
                averages.numpy(),
                shares.numpy(),
                totals.numpy(),
                first,
            )
        ctx.save_for_backward(states, decays, shares, totals)
        ctx.first = first
        return averages

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        states, decays, shares, totals = ctx.saved_tensors
        gradient, decay, share = array(grad), array(decays), shares.numpy()
        to_states = to_coefficients = None
        with like_torch():
            if ctx.needs_input_grad[0]:
                to_states = torch.empty_like(states, memory_format=torch.contiguous_format)
                _backward_states(gradient, decay, share, to_states.numpy(), ctx.first)
            if ctx.needs_input_grad[2]:
                to_coefficients = torch.empty_like(shares)
                _backward_coefficients(
                    gradient, array(states), decay, share, totals.numpy(), to_coefficients.numpy(), ctx.first
                )
        return to_states, None, to_coefficients, None


@kernel()
def _forward(
    states: Array, decays: Array, coefficients: Array, averages: Array, shares: Array, totals: Array, first: int
) -> None:
    rows, length, width = states.shape
    heads, nodes = coefficients.shape[2:]
    for row in prange(rows):
        S, n = np.zeros((nodes, width), states.dtype), np.zeros(nodes, states.dtype)
        for t in range(length):
            _step(S, n, decays[row, t], states[row, t])
            for k in range(heads if t >= first else 0):
                mix, share = coefficients[row, t - first, k], shares[row, t - first, k]
                total = ZERO
                for m in range(nodes):
                    total += mix[m] * n[m]
                totals[row, t - first, k] = total
                if total < LEAST:
                    share[:] = ZERO
                    share[nodes - 1] = 1 / n[nodes - 1]
                else:
                    for m in range(nodes):  # dividing M coefficients is cheaper than dividing d dimensions
                        share[m] = mix[m] / total
                average = averages[row, t - first, k]
                average[:] = ZERO
                fours = nodes - nodes % 4
                for m in range(0, fours, 4):  # four at a time, so that the average is read and written less often
                    c0, c1, c2, c3 = share[m], share[m + 1], share[m + 2], share[m + 3]
                    for e in range(width):
                        average[e] += c0 * S[m, e] + c1 * S[m + 1, e] + c2 * S[m + 2, e] + c3 * S[m + 3, e]
                for m in range(fours, nodes):
                    for e in range(width):
                        average[e] += share[m] * S[m, e]


@kernel()
def _backward_states(grad: Array, decays: Array, shares: Array, to_states: Array, first: int) -> None:
    rows, length, width = to_states.shape
    heads, nodes = shares.shape[2:]
    fours = heads - heads % 4
    for row in prange(rows):
        later = np.zeros((nodes, width), grad.dtype)  # gradient of S_t
        for t in range(length - 1, -1, -1):
            out = to_states[row, t]
            out[:] = ZERO
            if t >= first:
                g, share = grad[row, t - first], shares[row, t - first]
                for m in range(nodes):
                    for k in range(0, fours, 4):
                        c0, c1, c2, c3 = share[k, m], share[k + 1, m], share[k + 2, m], share[k + 3, m]
                        for e in range(width):
                            later[m, e] += c0 * g[k, e] + c1 * g[k + 1, e] + c2 * g[k + 2, e] + c3 * g[k + 3, e]
                    for k in range(fours, heads):
                        for e in range(width):
                            later[m, e] += share[k, m] * g[k, e]
            for m in range(nodes):
                decay = decays[row, t, m]
                for e in range(width):
                    g = later[m, e]
                    out[e] += g
                    g *= decay
                    later[m, e] = ZERO if abs(g) < NEGLIGIBLE else g


@kernel()
def _backward_coefficients(
    grad: Array, states: Array, decays: Array, shares: Array, totals: Array, to_coefficients: Array, first: int
) -> None:
    rows, length, width = states.shape
    heads, nodes = shares.shape[2:]
    for row in prange(rows):
        S, n = np.zeros((nodes, width), states.dtype), np.zeros(nodes, states.dtype)
        for t in range(length):
            _step(S, n, decays[row, t], states[row, t])
            for k in range(heads if t >= first else 0):
                g, out, share = grad[row, t - first, k], to_coefficients[row, t - first, k], shares[row, t - first, k]
                if totals[row, t - first, k] < LEAST:
                    out[:] = ZERO
                    continue
                along = ZERO  # gradient · Z
                for m in range(nodes):
                    product = ZERO
                    for e in range(width):
                        product += g[e] * S[m, e]
                    out[m] = product
                    along += share[m] * product
                for m in range(nodes):
                    out[m] = (out[m] - along * n[m]) / totals[row, t - first, k]


@kernel(parallel=False)
def _step(S: Array, n: Array, decays: Array, state: Array) -> None:
    """Let the sums decay and add a state."""
    for m in range(S.shape[0]):
        decay = decays[m]
        n[m] = decay * n[m] + ONE
        for e in range(S.shape[1]):
            S[m, e] = decay * S[m, e] + state[e]
