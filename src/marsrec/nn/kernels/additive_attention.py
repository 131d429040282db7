"""Scores of NARM's attention for all pairs of a position and an event up to it, without a (B, L, L, H) tensor.

With E = exp(-key) and F = exp(-query), sigmoid(key + query) = 1 / (1 + E · F): exponentials are taken once per event,
and a pair costs a product and a division per channel. The backward pass computes them again.

Shapes: B histories, L events, Q positions that are read out, H channels.
"""

from typing import Any

import torch
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import ONE, ZERO, Implementation, array, fits

_BLOCK = 128  # channels that one thread does in a go, in the backward pass
_LIMIT = 85.0  # exponentials stay finite and positive, and so their product is never 0 · infinity


def additive_attention(keys: Tensor, queries: Tensor, v: Tensor, *, implementation: Implementation = "auto") -> Tensor:
    """Score each event up to a position by v · sigmoid(key of the event + query of the position).

    Parameters
    ----------
    keys : Tensor (B, L, H)
        Of the events.
    queries : Tensor (B, Q, H)
        Of the latest Q positions, which may be all.
    v : Tensor (H,)
        Weights of the channels.
    implementation : {"auto", "reference"}
        "auto" is the kernel for float32 on the CPU. It takes keys and queries beyond ±85 for ±85, which
        makes a difference only where both are so large and of opposite sign. "reference" holds (B, Q, L, H) tensors.

    Returns
    -------
    Tensor (B, Q, L)
        The scores, 0 for events after the position. There is no softmax.

    Examples
    --------
    >>> keys = torch.tensor([[[0.0], [1.0], [2.0]]])
    >>> additive_attention(keys, -keys, torch.tensor([2.0]))
    tensor([[[1.0000, 0.0000, 0.0000],
             [0.5379, 1.0000, 0.0000],
             [0.2384, 0.5379, 1.0000]]])
    """
    if implementation == "reference" or not fits(keys, queries, v):
        pairs = torch.sigmoid(keys[:, None] + queries[:, :, None])  # (B, Q, L, H)
        return (pairs @ v).tril(keys.shape[1] - queries.shape[1])
    scores: Tensor = _AdditiveAttention.apply(keys, queries, v)  # type: ignore[no-untyped-call]
    return scores


class _AdditiveAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, keys: Tensor, queries: Tensor, v: Tensor) -> Tensor:
        ctx.save_for_backward(keys, queries, v)
        scores = keys.new_empty(*queries.shape[:2], keys.shape[1])
        with like_torch():
            _forward(_exponentials(keys), _exponentials(queries), array(v), scores.numpy())
        return scores

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        keys, queries, v = ctx.saved_tensors
        grad_keys, grad_queries = keys.new_zeros(keys.shape), queries.new_zeros(queries.shape)
        grad_v = v.new_zeros(len(keys), len(v))
        with like_torch():
            inputs = _exponentials(keys), _exponentials(queries), array(v), array(grad)
            _backward(*inputs, *(part.numpy() for part in (grad_keys, grad_queries, grad_v)))
        return grad_keys, grad_queries, grad_v.sum(0)


def _exponentials(x: Tensor) -> Any:
    return array(torch.exp(-x.clamp(-_LIMIT, _LIMIT)))


@kernel()
def _forward(keys: Any, queries: Any, v: Any, scores: Any) -> None:
    """Scores from exponentials of keys and queries."""
    B, Q, L = scores.shape
    for index in prange(B * Q):
        b, i = index // Q, index % Q
        query, score = queries[b, i], scores[b, i]
        past = L - Q + i + 1
        for j in range(past):
            key = keys[b, j]
            total = ZERO
            for c in range(len(v)):
                total += v[c] / (ONE + key[c] * query[c])
            score[j] = total
        score[past:] = ZERO


@kernel()
def _backward(keys: Any, queries: Any, v: Any, grad: Any, grad_keys: Any, grad_queries: Any, grad_v: Any) -> None:
    """Add gradients of what `_forward` did; `grad_v` (B, H) is one sum for each row.

    A pair of positions has a gradient for two events, but channels have nothing to do with each other. So threads share
    rows and blocks of channels, and each adds to its own.
    """
    B, Q, L = grad.shape
    H = len(v)
    blocks = (H + _BLOCK - 1) // _BLOCK
    for index in prange(B * blocks):
        b, start = index // blocks, index % blocks * _BLOCK
        stop = min(start + _BLOCK, H)
        weight, grad_weight = v[start:stop], grad_v[b, start:stop]
        for i in range(Q):
            query, grad_query = queries[b, i, start:stop], grad_queries[b, i, start:stop]
            for j in range(L - Q + i + 1):
                key, grad_key = keys[b, j, start:stop], grad_keys[b, j, start:stop]
                slope = grad[b, i, j]
                for c in range(len(weight)):
                    sigmoid = ONE / (ONE + key[c] * query[c])
                    share = slope * sigmoid
                    grad_weight[c] += share
                    share *= weight[c] * (ONE - sigmoid)
                    grad_query[c] += share
                    grad_key[c] += share
