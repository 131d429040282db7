"""The gate of MARS: scores of the heads from a hidden layer, their softmax, and the sum that it weighs.

Shapes: N positions (in any number of dimensions), K heads, d width, h width of the hidden layer.
"""

from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor
from torch.autograd.function import once_differentiable

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import exp, fits

_BLOCK = 64  # positions that one thread does in a go


def gated_sum(
    summaries: Tensor,
    weight: Tensor,
    shared: Tensor,
    out: Tensor,
    *,
    implementation: Literal["auto", "reference", "cpu"] = "auto",
) -> tuple[Tensor, Tensor]:
    """Sum the K summaries of each position with weights softmax(out · tanh(weight summary + shared)).

    Parameters
    ----------
    summaries : Tensor (..., K, d)
        What is summed.
    weight : Tensor (h, d)
        Hidden layer.
    shared : Tensor (..., h)
        What is added to the hidden layer of all heads.
    out : Tensor (h,)
        Output layer.
    implementation : {"auto", "reference", "cpu"}
        "auto" takes "cpu" for float32 and float64 on the CPU.

    Returns
    -------
    Tensor (..., d), Tensor (..., K)
        The sums, and the weights.
    """
    if implementation == "auto":
        implementation = "cpu" if fits(summaries, weight, shared, out) else "reference"
    if implementation == "reference":
        scores = torch.tanh(F.linear(summaries, weight) + shared[..., None, :]) @ out
        gate = scores.softmax(dim=-1)
        return (gate[..., None, :] @ summaries)[..., 0, :], gate
    sums, gate = _GatedSum.apply(  # type: ignore[no-untyped-call]
        summaries.flatten(0, -3).contiguous(), weight, shared.flatten(0, -2).contiguous(), out
    )
    return sums.view(*shared.shape[:-1], summaries.shape[-1]), gate.view(summaries.shape[:-1])


class _GatedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, summaries: Tensor, weight: Tensor, shared: Tensor, out: Tensor) -> tuple[Tensor, Tensor]:
        N, K, d = summaries.shape
        hidden = torch.mm(summaries.view(-1, d), weight.T).view(N, K, len(out))
        sums, gate = summaries.new_empty(N, d), summaries.new_empty(N, K)
        with like_torch():
            _forward(*(part.detach().numpy() for part in (summaries, hidden, shared, out.contiguous(), sums, gate)))
        ctx.save_for_backward(summaries, weight, hidden, out, gate)
        return sums, gate

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_sums: Tensor, grad_gate: Tensor) -> tuple[Tensor, ...]:
        summaries, weight, hidden, out, gate = ctx.saved_tensors
        N, K, d = summaries.shape
        grad_hidden, grad_summaries = torch.empty_like(hidden), torch.empty_like(summaries)
        grad_shared, grad_out = hidden.new_empty(N, len(out)), hidden.new_empty(-(-N // _BLOCK), len(out))
        inputs = summaries, hidden, out.contiguous(), gate, grad_sums.contiguous(), grad_gate.contiguous()
        with like_torch():
            outputs = grad_hidden, grad_summaries, grad_shared, grad_out
            _backward(*(part.detach().numpy() for part in (*inputs, *outputs)))
        flat = grad_hidden.view(N * K, len(out))
        grad_summaries.view(N * K, d).addmm_(flat, weight)
        return grad_summaries, flat.T @ summaries.view(N * K, d), grad_shared, grad_out.sum(0)


@kernel()
def _forward(summaries: Any, hidden: Any, shared: Any, out: Any, sums: Any, gate: Any) -> None:
    """The hidden layer gets its tanh in place; `sums` and `gate` are computed."""
    N, K, _ = summaries.shape
    zero, one, two = hidden.dtype.type(0), hidden.dtype.type(1), hidden.dtype.type(2)
    for block in prange((N + _BLOCK - 1) // _BLOCK):
        for n in range(block * _BLOCK, min(N, block * _BLOCK + _BLOCK)):
            for k in range(K):
                layer, common = hidden[n, k], shared[n]
                score = zero
                for i in range(len(layer)):
                    value = one - two / (exp(two * (layer[i] + common[i])) + one)  # tanh
                    layer[i] = value
                    score += value * out[i]
                gate[n, k] = score
            top = gate[n].max()
            total = zero
            for k in range(K):
                gate[n, k] = exp(gate[n, k] - top)
                total += gate[n, k]
            result = sums[n]
            result[:] = 0
            for k in range(K):
                gate[n, k] /= total
                factor, summary = gate[n, k], summaries[n, k]
                for i in range(len(result)):
                    result[i] += factor * summary[i]


@kernel()
def _backward(
    summaries: Any,
    hidden: Any,
    out: Any,
    gate: Any,
    grad_sums: Any,
    grad_gate: Any,
    grad_hidden: Any,
    grad_summaries: Any,
    grad_shared: Any,
    grad_out: Any,
) -> None:
    """Gradients of what `_forward` did; `grad_out` is one sum for each block of positions."""
    N, K, _ = summaries.shape
    zero, one = hidden.dtype.type(0), hidden.dtype.type(1)
    for block in prange((N + _BLOCK - 1) // _BLOCK):
        slopes = np.empty(K, hidden.dtype)
        grad_out[block] = 0
        for n in range(block * _BLOCK, min(N, block * _BLOCK + _BLOCK)):
            grad = grad_sums[n]
            mean = zero
            for k in range(K):
                summary, grad_summary, factor = summaries[n, k], grad_summaries[n, k], gate[n, k]
                slope = grad_gate[n, k]
                for i in range(len(grad)):
                    slope += grad[i] * summary[i]
                    grad_summary[i] = factor * grad[i]
                slopes[k] = slope
                mean += factor * slope
            common, total = grad_shared[n], grad_out[block]
            common[:] = 0
            for k in range(K):
                slope = gate[n, k] * (slopes[k] - mean)
                slopes[k] = slope
                layer, grad_layer = hidden[n, k], grad_hidden[n, k]
                for i in range(len(layer)):
                    value = slope * out[i] * (one - layer[i] * layer[i])
                    grad_layer[i] = value
                    common[i] += value
            for k in range(K):  # a loop of its own: within the other one LLVM would vectorise neither
                layer, slope = hidden[n, k], slopes[k]
                for i in range(len(layer)):
                    total[i] += slope * layer[i]
