"""Dropout whose mask is a hash of a seed and a place: nothing is stored, and the backward pass hashes again.

Drawing the numbers of `F.dropout` one after another takes several times as long as everything else that it does.
"""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange, uint32, uint64
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import ZERO

_ROW = 1024  # elements that share a key
_GOLDEN, _MIX_A, _MIX_B = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_HASH_A, _HASH_B = np.uint32(0x7FEB352D), np.uint32(0x846CA68B)


def dropout(x: Tensor, p: float) -> Tensor:
    """Zero elements with probability p and divide the others by 1 - p, like `F.dropout`.

    The mask follows from one draw of torch's global generator, and not from the number of threads. On other devices
    than the CPU and for other numbers than float32 this is `F.dropout`.

    Parameters
    ----------
    x : Tensor
        Of any shape.
    p : float
        Probability, at least 0 and below 1.
    """
    if p == 0:
        return x
    if not x.is_cpu or x.dtype != torch.float32:
        return F.dropout(x, p)
    dropped: Tensor = _Dropout.apply(x, p, draw_seed())  # type: ignore[no-untyped-call]
    return dropped


class Dropout(nn.Dropout):
    """`nn.Dropout` with the mask of `dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Drop while training."""
        return dropout(input, self.p) if self.training else input


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, seed: int) -> Tensor:
        ctx.options = p, seed
        return _masked(x, p, seed)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _masked(grad, *ctx.options), None, None


def _masked(x: Tensor, p: float, seed: int) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    with like_torch():
        _mask(x.view(-1).numpy(), np.uint64(seed), threshold(p), np.float32(1 / (1 - p)), out.view(-1).numpy())
    return out


def draw_seed() -> int:
    """63 random bits from torch's global generator."""
    return int(torch.randint(2**63 - 1, ()))


def threshold(p: float) -> Any:
    """A hash below it, which has 32 bits, has probability p."""
    return np.uint32(min(round(p * 2**32), 2**32 - 1))


@kernel(parallel=False)
def row_key(seed: Any, row: Any) -> Any:
    """64 bits for a row of elements: splitmix64."""
    z = uint64(seed + _GOLDEN * uint64(row + 1))
    z = uint64(z ^ (z >> uint64(30))) * _MIX_A
    z = uint64(z ^ (z >> uint64(27))) * _MIX_B
    return uint64(z ^ (z >> uint64(31)))


@kernel(parallel=False)
def hashed(low: Any, high: Any, place: Any) -> Any:
    """32 bits for a place in a row, from the two halves of its key: two rounds of multiplication, which vectorise."""
    x = uint32(uint32(place) ^ low)
    x = uint32(x ^ uint32(x >> uint32(16)))
    x = uint32(uint32(x * _HASH_A) + high)
    x = uint32(x ^ uint32(x >> uint32(15)))
    x = uint32(x * _HASH_B)
    return uint32(x ^ uint32(x >> uint32(16)))


@kernel()
def _mask(x: Any, seed: Any, below: Any, scale: Any, out: Any) -> None:
    for row in prange((len(x) + _ROW - 1) // _ROW):
        key = row_key(seed, row)
        low, high = uint32(key), uint32(key >> uint64(32))
        start = row * _ROW
        source, target = x[start : start + _ROW], out[start : start + _ROW]
        for j in range(len(source)):
            target[j] = source[j] * (scale if hashed(low, high, j) >= below else ZERO)
