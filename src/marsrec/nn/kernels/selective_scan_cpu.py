"""The selective scan on the CPU: numba kernels, forward and backward, and their place in torch's autograd.

The recurrence, its inputs and shape letters are those of `marsrec.nn.kernels.selective_scan`.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import NEGLIGIBLE, ZERO, Array, array, exp

# The states of a block of channels stay in the L1 cache (32 states × 128 channels are 16 kB in float32), those of a
# segment of positions, which the backward pass recomputes, in the L2 cache.
_BLOCK = 128
_SEGMENT = 16
# Short rows share a sum of the rates' gradients, which for each alone would be more memory traffic than work.
_GROUPED = 64  # positions


def cpu_scan(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """(B, L, E), differentiable in all inputs, which are float32."""
    y: Tensor = _Scan.apply(x, delta, A, B, C, D, torch.is_grad_enabled())  # type: ignore[no-untyped-call]
    return y


def cpu_scan_from(
    state: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> tuple[Tensor, Tensor]:
    """The output from a state (B, E, N) on, and the state after it; without gradients."""
    wide = len(D) + -len(D) % _BLOCK
    carried = F.pad(state.transpose(1, 2), (0, wide - len(D))).contiguous()  # (B, N, E)
    y, _ = _run_forward(x, delta, A, B, C, D, carried, keep=False)
    return y, carried[..., : len(D)].transpose(1, 2)


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
        groups = -(-rows // grouped)
        grad_A, grad_D = x.new_empty(groups, states, wide), x.new_empty(groups, wide)
        grad_B, grad_C = (x.new_empty(wide // _BLOCK, rows, length, states) for _ in range(2))
        with like_torch():
            _backward(
                _blocks(grad), _blocks(x), _blocks(delta), _blocks(A.T), array(B), array(C), _blocks(D), array(kept),
                array(grad_x), array(grad_delta), array(grad_A), array(grad_B), array(grad_C), array(grad_D),
            )  # fmt: skip
        return (
            grad_x[..., :channels],
            grad_delta[..., :channels],
            grad_A.sum(0).T[:channels],
            _total(grad_B),
            _total(grad_C),
            grad_D.sum(0)[:channels],
            None,
        )


def _total(blocks: Tensor) -> Tensor:
    """The sum over blocks of channels, of which there is mostly one."""
    return blocks[0] if len(blocks) == 1 else blocks.sum(0)


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
        rates, h = np.empty((states, _BLOCK), x.dtype), np.zeros((states, _BLOCK), x.dtype)
        _copy(A[:, low:high], rates)
        if len(state) > 0:
            _copy(state[row, :, low:high], h)
        fed, skip = np.empty(_BLOCK, x.dtype), D[low:high]
        for t in range(length):
            if kept.shape[1] > 0 and t > 0 and t % _SEGMENT == 0:
                _copy(h, kept[row, t // _SEGMENT - 1, :, low:high])
            # Slices first: an index like `low + e` might be negative to numba, and would not vectorise.
            step, source, out = delta[row, t, low:high], x[row, t, low:high], y[row, t, low:high]
            for e in range(_BLOCK):
                fed[e] = step[e] * source[e]
                out[e] = skip[e] * source[e]
            for n in range(states):
                write, read = B[row, t, n], C[row, t, n]
                for e in range(_BLOCK):
                    new = exp(step[e] * rates[n, e]) * h[n, e] + fed[e] * write
                    h[n, e] = new
                    out[e] += read * new
        if len(state) > 0:
            _copy(h, state[row, :, low:high])


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
    grad_D: Array,
) -> None:
    rows, length, channels = x.shape
    states, blocks, groups = A.shape[0], channels // _BLOCK, len(grad_A)
    grouped = (rows + groups - 1) // max(1, groups)
    for task in prange(groups * blocks):
        group, block = task // blocks, task % blocks
        low, high = block * _BLOCK, block * _BLOCK + _BLOCK
        rates = np.empty((states, _BLOCK), x.dtype)
        _copy(A[:, low:high], rates)
        h = np.empty((_SEGMENT + 1, states, _BLOCK), x.dtype)  # states before and after each position of a segment
        decay = np.empty((_SEGMENT, states, _BLOCK), x.dtype)
        later = np.empty((states, _BLOCK), x.dtype)  # gradient that reaches a state from the positions after it
        to_rates, to_skip = np.zeros((states, _BLOCK), x.dtype), np.zeros(_BLOCK, x.dtype)
        skip = D[low:high]
        fed, to_fed, to_step = np.empty(_BLOCK, x.dtype), np.empty(_BLOCK, x.dtype), np.empty(_BLOCK, x.dtype)
        for row in range(group * grouped, min(group * grouped + grouped, rows)):
            later[:] = 0
            for segment in range((length + _SEGMENT - 1) // _SEGMENT - 1, -1, -1):
                start, stop = segment * _SEGMENT, min(segment * _SEGMENT + _SEGMENT, length)
                if segment > 0:
                    _copy(kept[row, segment - 1, :, low:high], h[0])
                else:
                    h[0] = 0
                for t in range(start, stop):
                    i = t - start
                    step, source = delta[row, t, low:high], x[row, t, low:high]
                    for e in range(_BLOCK):
                        fed[e] = step[e] * source[e]
                    for n in range(states):
                        write = B[row, t, n]
                        share, before, after = decay[i, n], h[i, n], h[i + 1, n]
                        for e in range(_BLOCK):
                            share[e] = exp(step[e] * rates[n, e])
                        for e in range(_BLOCK):
                            after[e] = share[e] * before[e] + fed[e] * write
                for t in range(stop - 1, start - 1, -1):
                    i = t - start
                    step, source, out = delta[row, t, low:high], x[row, t, low:high], grad[row, t, low:high]
                    for e in range(_BLOCK):
                        fed[e] = step[e] * source[e]
                        to_fed[e] = 0
                        to_step[e] = 0
                    for n in range(states):
                        write, read = B[row, t, n], C[row, t, n]
                        to_read = to_write = ZERO
                        for e in range(_BLOCK):
                            g = later[n, e] + out[e] * read
                            to_read += out[e] * h[i + 1, n, e]
                            to_write += g * fed[e]
                            to_fed[e] += g * write
                            g *= decay[i, n, e]
                            g = ZERO if abs(g) < NEGLIGIBLE else g  # it fades over many positions
                            later[n, e] = g
                            g *= h[i, n, e]  # gradient of the exponent Δ A
                            to_step[e] += g * rates[n, e]
                            to_rates[n, e] += g * step[e]
                        grad_B[block, row, t, n] = to_write
                        grad_C[block, row, t, n] = to_read
                    to_x, to_delta = grad_x[row, t, low:high], grad_delta[row, t, low:high]
                    for e in range(_BLOCK):
                        to_x[e] = out[e] * skip[e] + to_fed[e] * step[e]
                        to_delta[e] = to_step[e] + to_fed[e] * source[e]
                    for e in range(_BLOCK):
                        to_skip[e] += out[e] * source[e]
        _copy(to_rates, grad_A[group, :, low:high])
        for e in range(_BLOCK):
            grad_D[group, low + e] = to_skip[e]


@kernel(parallel=False)
def _copy(source: Array, target: Array) -> None:
    """Numba's own copy of a slice takes seconds to compile, most of it for the message of an error."""
    for n in range(len(source)):
        for e in range(_BLOCK):
            target[n, e] = source[n, e]
