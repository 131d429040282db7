"""Mamba's selective scan: a torch reference, a numba kernel for the CPU and mamba-ssm's for CUDA, one signature.

Each of E channels has N states that decay and are fed at rates that depend on the input::

    h_t = exp(Δ_t A) · h_{t-1} + Δ_t x_t B_t        h_0 = 0
    y_t = C_t · h_t + D x_t

Shapes: B rows, L positions, E channels, N states per channel.
"""

import os
import warnings
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compiled import kernel
from marsrec.errors import SettingsError
from marsrec.nn.kernels.numeric import Array, array, exp, widened
from marsrec.threads import like_torch

Implementation = Literal["reference", "cpu", "cuda"]

FORCED = "MARSREC_SCAN"
"""Environment variable that forces an implementation."""


# The states of a block of channels stay in the L1 cache (32 states × 128 channels are 16 kB in float32), those of a
# segment of positions, which the backward pass recomputes, in the L2 cache.
_BLOCK = 128
_SEGMENT = 16
# Short rows share a sum of the rates' gradients, which for each alone would be more memory traffic than work.
_GROUPED = 64  # positions


@cache
def chosen(device: str) -> Implementation:
    """The implementation that runs on a kind of device, decided at the first call."""
    forced = os.environ.get(FORCED)
    if forced and not (forced == "cuda" and device == "cpu"):  # a model that was trained there is evaluated here
        return _possible(forced, device)
    if device == "cuda":
        if not (missing := _missing()):
            return "cuda"
        if find_spec("mamba_ssm") is not None:
            warnings.warn(f"{missing}: the selective scan runs in torch, a position at a time.", stacklevel=2)
    return "cpu" if device == "cpu" else "reference"


def _missing() -> str | None:
    """Why mamba-ssm cannot be used, if so."""
    if find_spec("mamba_ssm") is None:
        return "mamba-ssm is not installed (pip install mamba-ssm)"
    try:
        import_module("mamba_ssm.ops.selective_scan_interface")
    except Exception as error:  # built for another torch or CUDA, it fails in many ways
        return f"mamba-ssm is installed but does not load ({error})"
    return None


def _possible(name: str, device: str) -> Implementation:
    """An implementation by its name, if it can run on a kind of device."""
    if name not in get_args(Implementation):
        reason = f"there are {', '.join(get_args(Implementation))}"
    elif name in ("cpu", "cuda") and name != device:
        reason = f"it does not run on tensors of the {device}; take {device if device == 'cpu' else 'reference'!r}"
    elif name == "cuda" and (missing := _missing()):
        reason = missing
    else:
        return name  # type: ignore[return-value]
    raise SettingsError(f"selective scan {name!r} ({FORCED} or implementation=...): {reason}.")


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    *,
    implementation: Implementation | None = None,
) -> Tensor:
    """Run the recurrence over a batch of sequences, differentiably in all six inputs.

    Parameters
    ----------
    x : Tensor (B, L, E)
        Input.
    delta : Tensor (B, L, E)
        Step sizes Δ, positive.
    A : Tensor (E, N)
        Decay rates, negative.
    B, C : Tensor (B, L, N)
        What is written to the states and what is read from them.
    D : Tensor (E,)
        Share of the input that goes straight to the output.
    implementation : {"reference", "cpu", "cuda"}, optional
        Which one to use. If not given, what the environment variable MARSREC_SCAN says, else the fastest there is for
        the device.

    Returns
    -------
    Tensor (B, L, E)

    Examples
    --------
    One channel with one state that keeps half of itself at each step:

    >>> ones = torch.ones(1, 4, 1)
    >>> halving = torch.full((1, 1), 0.5).log()
    >>> selective_scan(ones, ones, halving, ones, ones, torch.zeros(1)).flatten()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    _check(x, delta, A, B, C, D)
    taken = chosen(x.device.type) if implementation is None else _possible(implementation, x.device.type)
    parts = widened(x, delta, A, B, C, D)  # half precision loses what decays slowly
    if taken == "cpu":
        y: Tensor = _Scan.apply(*parts, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    elif taken == "cuda" and parts[0].dtype == torch.float32 and x.numel():  # it does not take an empty batch
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # type: ignore[import-not-found]

        u, step, write, read = (parts[i].transpose(1, 2).contiguous() for i in (0, 1, 3, 4))
        y = selective_scan_fn(u, step, parts[2], write, read, parts[5]).transpose(1, 2)
    else:
        y = reference(*parts)[0]
    return y.to(x.dtype)


@torch.no_grad()
def continued_scan(
    state: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> tuple[Tensor, Tensor]:
    """Go on from a state (B, E, N) without gradients: the output, and the state (B, E, N) after the last position.

    Cutting a sequence anywhere and going on gives what one scan over all of it gives. The inputs are those of
    `selective_scan`.
    """
    _check(x, delta, A, B, C, D)
    dtype = x.dtype
    x, delta, A, B, C, D, state = widened(x, delta, A, B, C, D, state)
    if chosen(x.device.type) == "cpu":
        wide = len(D) + -len(D) % _BLOCK
        carried = F.pad(state.transpose(1, 2), (0, wide - len(D))).contiguous()  # (B, N, E)
        y, _ = _run_forward(x, delta, A, B, C, D, carried, keep=False)
        final = carried[..., : len(D)].transpose(1, 2)
    else:
        y, final = reference(x, delta, A, B, C, D, state)
    return y.to(dtype), final


def reference(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence as it is written above, a position at a time: output and last state (B, E, N)."""
    h = x.new_zeros(x.shape[0], *A.shape) if state is None else state
    outputs = []
    parts = (part.unbind(1) for part in (x, delta, B, C))
    for x_t, delta_t, B_t, C_t in zip(*parts, strict=True):
        h = torch.exp(delta_t[..., None] * A) * h + (delta_t * x_t)[..., None] * B_t[:, None]
        outputs.append((h @ C_t[..., None])[..., 0] + D * x_t)
    return (torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x)), h


def _check(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> None:
    rows, length, channels = x.shape
    states = A.shape[-1]
    found = [tuple(part.shape) for part in (delta, A, B, C, D)]
    wanted = [tuple(x.shape), (channels, states), (rows, length, states), (rows, length, states), (channels,)]
    if found != wanted:
        raise ValueError(
            "selective_scan wants x and delta (B, L, E), A (E, N), B and C (B, L, N) and D (E,); "
            f"x is {tuple(x.shape)}, the others {found}"
        )


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, grad_enabled: bool
    ) -> Tensor:
        nothing = x.new_empty(0, A.shape[1], len(D) + -len(D) % _BLOCK)
        y, kept = _run_forward(x, delta, A, B, C, D, nothing, keep=grad_enabled and any(ctx.needs_input_grad))
        ctx.save_for_backward(x, delta, A, B, C, D, kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, delta, A, B, C, D, kept = ctx.saved_tensors
        (rows, length, states), channels = B.shape, len(D)
        wide = kept.shape[-1]
        grad_x, grad_delta = x.new_empty(rows, length, wide), x.new_empty(rows, length, wide)
        # Sums over rows or over blocks of channels are taken afterwards, in an order that no thread can change.
        grouped = max(1, _GROUPED // max(1, length))
        grad_A = x.new_empty(-(-rows // grouped), states, wide)
        grad_B, grad_C = (x.new_empty(wide // _BLOCK, rows, length, states) for _ in range(2))
        with like_torch():
            _backward(
                _blocks(grad), _blocks(x), _blocks(delta), _blocks(A.T), array(B), array(C), _blocks(D), array(kept),
                array(grad_x), array(grad_delta), array(grad_A), array(grad_B), array(grad_C),
            )  # fmt: skip
        return (
            grad_x[..., :channels],
            grad_delta[..., :channels],
            grad_A.sum(0).T[:channels],
            grad_B.sum(0),
            grad_C.sum(0),
            (grad * x).sum((0, 1)),
            None,
        )


def _blocks(part: Tensor) -> Array:
    """Channels, filled up with zeros to whole blocks: loops of a length that the compiler knows are faster."""
    missing = -part.shape[-1] % _BLOCK
    return array(F.pad(part, (0, missing)) if missing else part)


def _run_forward(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor, *, keep: bool
) -> tuple[Tensor, Tensor]:
    """Output, and the states before every segment but the first if they are to be kept.

    The scan goes on from `state` (B, N, E) and leaves there what it came to; no rows of it mean zeros, and to forget.
    """
    (rows, length, states), wide = B.shape, state.shape[-1]
    y = x.new_empty(rows, length, wide)
    kept = x.new_empty(rows, max(0, -(-length // _SEGMENT) - 1) if keep else 0, states, wide)
    with like_torch():
        _forward(
            _blocks(x),
            _blocks(delta),
            _blocks(A.T),
            array(B),
            array(C),
            _blocks(D),
            array(state),
            array(y),
            array(kept),
        )
    return y[..., : len(D)], kept


@kernel()
def _forward(
    x: Array, delta: Array, A: Array, B: Array, C: Array, D: Array, state: Array, y: Array, kept: Array
) -> None:
    rows, length, channels = x.shape
    states, blocks = A.shape[0], channels // _BLOCK
    for task in prange(rows * blocks):
        row, low = task // blocks, task % blocks * _BLOCK
        high = low + _BLOCK
        rates = A[:, low:high].copy()
        h = np.zeros((states, _BLOCK), x.dtype)
        if len(state) > 0:
            h[:] = state[row, :, low:high]
        fed = np.empty(_BLOCK, x.dtype)
        for t in range(length):
            if kept.shape[1] > 0 and t > 0 and t % _SEGMENT == 0:
                kept[row, t // _SEGMENT - 1, :, low:high] = h
            step, out = delta[row, t, low:high], y[row, t, low:high]
            for e in range(_BLOCK):
                fed[e] = step[e] * x[row, t, low + e]
                out[e] = D[low + e] * x[row, t, low + e]
            for n in range(states):
                write, read = B[row, t, n], C[row, t, n]
                for e in range(_BLOCK):
                    new = exp(step[e] * rates[n, e]) * h[n, e] + fed[e] * write
                    h[n, e] = new
                    out[e] += read * new
        if len(state) > 0:
            state[row, :, low:high] = h


@kernel()
def _backward(
    grad: Array,
    x: Array,
    delta: Array,
    A: Array,
    B: Array,
    C: Array,
    D: Array,
    kept: Array,
    grad_x: Array,
    grad_delta: Array,
    grad_A: Array,
    grad_B: Array,
    grad_C: Array,
) -> None:
    rows, length, channels = x.shape
    states, blocks, groups = A.shape[0], channels // _BLOCK, len(grad_A)
    grouped = (rows + groups - 1) // max(1, groups)
    for task in prange(groups * blocks):
        group, block = task // blocks, task % blocks
        low, high = block * _BLOCK, block * _BLOCK + _BLOCK
        rates = A[:, low:high].copy()
        h = np.empty((_SEGMENT + 1, states, _BLOCK), x.dtype)  # states before and after each position of a segment
        decay = np.empty((_SEGMENT, states, _BLOCK), x.dtype)
        later = np.empty((states, _BLOCK), x.dtype)  # gradient that reaches a state from the positions after it
        to_rates = np.zeros((states, _BLOCK), x.dtype)
        fed, to_fed, to_step = np.empty(_BLOCK, x.dtype), np.empty(_BLOCK, x.dtype), np.empty(_BLOCK, x.dtype)
        for row in range(group * grouped, min(group * grouped + grouped, rows)):
            later[:] = 0
            for segment in range((length + _SEGMENT - 1) // _SEGMENT - 1, -1, -1):
                start, stop = segment * _SEGMENT, min(segment * _SEGMENT + _SEGMENT, length)
                if segment > 0:
                    h[0] = kept[row, segment - 1, :, low:high]
                else:
                    h[0] = 0
                for t in range(start, stop):
                    i = t - start
                    step = delta[row, t, low:high]
                    for e in range(_BLOCK):
                        fed[e] = step[e] * x[row, t, low + e]
                    for n in range(states):
                        write = B[row, t, n]
                        share, before, after = decay[i, n], h[i, n], h[i + 1, n]
                        for e in range(_BLOCK):
                            share[e] = exp(step[e] * rates[n, e])
                        for e in range(_BLOCK):
                            after[e] = share[e] * before[e] + fed[e] * write
                for t in range(stop - 1, start - 1, -1):
                    i = t - start
                    step, out = delta[row, t, low:high], grad[row, t, low:high]
                    for e in range(_BLOCK):
                        fed[e] = step[e] * x[row, t, low + e]
                        to_fed[e] = 0
                        to_step[e] = 0
                    for n in range(states):
                        write, read = B[row, t, n], C[row, t, n]
                        to_read = to_write = x.dtype.type(0)
                        for e in range(_BLOCK):
                            g = later[n, e] + out[e] * read
                            to_read += out[e] * h[i + 1, n, e]
                            to_write += g * fed[e]
                            to_fed[e] += g * write
                            g *= decay[i, n, e]
                            later[n, e] = g
                            g *= h[i, n, e]  # gradient of the exponent Δ A
                            to_step[e] += g * rates[n, e]
                            to_rates[n, e] += g * step[e]
                        grad_B[block, row, t, n] = to_write
                        grad_C[block, row, t, n] = to_read
                    for e in range(_BLOCK):
                        grad_x[row, t, low + e] = out[e] * D[low + e] + to_fed[e] * step[e]
                        grad_delta[row, t, low + e] = to_step[e] + to_fed[e] * x[row, t, low + e]
        grad_A[group, :, low:high] = to_rates
