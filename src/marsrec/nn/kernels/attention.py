"""Causal attention with dropout on the CPU, some rows of its weights at a time.

Torch's own path for attention with dropout holds several (B, H, L, L) tensors and draws L × L random numbers. Here the
weights of a few histories and positions fit into the cache; the products are torch's, what stands between them is one
pass, and the backward pass computes weights and masks again.

Shapes: B histories, H heads, L positions, d width of a head.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange, uint32, uint64
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.dropout import draw_seed, dropout, hashed, row_key, threshold
from marsrec.nn.kernels.numeric import ZERO, exp, fits, largest

CHUNK = 64  # positions at a time: they attend to no later ones, which saves up to half of the work
BUFFER = 1 << 18  # weights at a time, as far as one row and CHUNK positions do not need more


def causal_attention(query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
    """Mix the values of all positions up to each with weights softmax(query · key / sqrt(d)), and drop weights.

    Equals `F.scaled_dot_product_attention(..., dropout_p=dropout, is_causal=True)`, but for the mask, which follows
    from one draw of torch's global generator. Without dropout, off the CPU and for other numbers than float32 it is
    that function.

    Parameters
    ----------
    query, key, value : Tensor (B, H, L, d)
        In any layout.
    dropout : float
        Probability that a weight is dropped, at least 0 and below 1.

    Returns
    -------
    Tensor (B, H, L, d)
    """
    if not dropout or not fits(query, key, value):
        return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
    mixed: Tensor = _CausalAttention.apply(query, key, value, dropout, draw_seed())  # type: ignore[no-untyped-call]
    return mixed


def attention(query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, drop: float) -> Tensor:
    """(B, H, S, d/H) each -> (B, H, S, d/H): torch's attention, and a cheaper way to it on the CPU with dropout."""
    if not drop or not query.is_cpu:
        bias = None if bias is None else bias.to(query.dtype)
        return F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=drop)
    logits = (query / math.sqrt(query.shape[-1])) @ key.mT  # (B, H, S, S)
    weights = (logits if bias is None else logits + bias).softmax(-1)
    return dropout(weights, drop) @ value


class _CausalAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, dropout: float, seed: int) -> Tensor:
        B, H, L, d = query.shape
        mixed = query.new_empty(B, L, H, d).transpose(1, 2)  # as the layer after it wants it
        total = query.new_empty(B, H, L)  # log of the softmax's denominator
        buffer = query.new_empty(buffer_size(B, L))
        options = kernel_options(query, dropout, seed)
        with like_torch():
            for h, rows, chunk in chunks(B, H, L):
                past = slice(chunk.stop)
                queries = query[rows, h, chunk]  # (R, C, d)
                weights = buffer[: queries.shape[0] * queries.shape[1] * chunk.stop].view(*queries.shape[:2], -1)
                torch.bmm(queries, key[rows, h, past].mT, out=weights)
                _softmax(rows.start, h, weights.numpy(), total.numpy(), *options)
                mixed[rows, h, chunk] = torch.bmm(weights, value[rows, h, past])
        ctx.save_for_backward(query, key, value, mixed, total)
        ctx.options = options
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, mixed, total = ctx.saved_tensors
        B, H, L, d = query.shape
        grad_query, grad_key, grad_value = grads = query.new_zeros(B, L, 3, H, d).permute(2, 0, 3, 1, 4)
        mean = torch.linalg.vecdot(grad, mixed).contiguous()  # (B, H, L): of the weights' slopes, under the weights
        buffers = query.new_empty(2, buffer_size(B, L))
        with like_torch():
            for h, rows, chunk in chunks(B, H, L):
                past = slice(chunk.stop)
                queries, slope = query[rows, h, chunk], grad[rows, h, chunk]  # (R, C, d)
                keys, values = key[rows, h, past], value[rows, h, past]  # (R, past, d)
                size = queries.shape[0] * queries.shape[1] * chunk.stop
                weights, slopes = (buffer[:size].view(*queries.shape[:2], -1) for buffer in buffers)
                torch.bmm(queries, keys.mT, out=weights)
                torch.bmm(slope, values.mT, out=slopes)
                _softmax_backward(
                    rows.start, h, weights.numpy(), slopes.numpy(), total.numpy(), mean.numpy(), *ctx.options
                )
                grad_value[rows, h, past] += torch.bmm(weights.mT, slope)
                grad_key[rows, h, past] += torch.bmm(slopes.mT, queries)
                grad_query[rows, h, chunk] = torch.bmm(slopes, keys)
        return *grads, None, None


def chunks(B: int, H: int, L: int) -> Iterator[tuple[int, slice, slice]]:
    """Head, rows and positions."""
    for start in range(0, L, CHUNK):
        stop = min(start + CHUNK, L)
        height = max(1, BUFFER // ((stop - start) * stop))
        for row in range(0, B, height):
            for head in range(H):
                yield head, slice(row, min(row + height, B)), slice(start, stop)


def buffer_size(B: int, L: int) -> int:
    """Number of weights that are held at a time."""
    largest = min(CHUNK, L) * L
    return min(max(BUFFER, largest), B * largest)


def kernel_options(query: Tensor, dropout: float, seed: int) -> tuple[Any, ...]:
    """What the kernels want to know: factor of the logits, factor of kept weights, seed, threshold of the hash."""
    number = query.detach().numpy().dtype.type
    return number(1 / math.sqrt(query.shape[-1])), number(1 / (1 - dropout)), np.uint64(seed), threshold(dropout)


@kernel()
def _softmax(row: int, head: int, weights: Any, total: Any, factor: Any, kept: Any, seed: Any, below: Any) -> None:
    """Products (R, C, past) become weights in place, dropped and hidden ones 0."""
    R, C, past = weights.shape
    H, L = total.shape[1:]
    for index in prange(R * C):
        r, c = index // C, index % C
        b, q = row + r, past - C + c
        weight, hidden = weights[r, c, : q + 1], weights[r, c, q + 1 :]
        top = factor * largest(weight)
        mass = ZERO
        for j in range(len(weight)):
            w = exp(factor * weight[j] - top)
            weight[j] = w
            mass += w
        total[b, head, q] = top + math.log(mass)
        key = row_key(seed, (b * H + head) * L + q)
        low, high = uint32(key), uint32(key >> uint64(32))
        scale = kept / mass
        for j in range(len(weight)):
            weight[j] *= scale if hashed(low, high, j) >= below else ZERO
        hidden[:] = ZERO


@kernel()
def _softmax_backward(
    row: int,
    head: int,
    weights: Any,
    slopes: Any,
    total: Any,
    mean: Any,
    factor: Any,
    kept: Any,
    seed: Any,
    below: Any,
) -> None:
    """Products become weights again, and slopes by the weights become slopes by the products, both in place."""
    R, C, past = weights.shape
    H, L = total.shape[1:]
    for index in prange(R * C):
        r, c = index // C, index % C
        b, q = row + r, past - C + c
        weight, slope = weights[r, c, : q + 1], slopes[r, c, : q + 1]
        log_mass, center = total[b, head, q], mean[b, head, q]
        key = row_key(seed, (b * H + head) * L + q)
        low, high = uint32(key), uint32(key >> uint64(32))
        for j in range(len(weight)):
            w = exp(factor * weight[j] - log_mass)
            scale = kept if hashed(low, high, j) >= below else ZERO
            weight[j] = w * scale
            slope[j] = factor * w * (scale * slope[j] - center)
        weights[r, c, q + 1 :] = ZERO
        slopes[r, c, q + 1 :] = ZERO
