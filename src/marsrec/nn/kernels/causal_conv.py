"""Causal depthwise convolution: each channel is a weighted sum of its own last few values.

Shapes: B rows, L positions, E channels, W weights per channel.
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
from marsrec.nn.kernels.numeric import Array, array, widened


def causal_conv(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Convolve along the positions, looking back only; before the first event there are zeros.

    On the CPU a numba kernel, which takes the channels as they lie; elsewhere `torch.nn.functional.conv1d`.

    Parameters
    ----------
    x : Tensor (B, L, E)
        Input.
    weight : Tensor (E, W)
        The last weight is for the present value, the one before it for the value before, and so on.
    bias : Tensor (E,)
        Added to the output.

    Returns
    -------
    Tensor (B, L, E)

    Examples
    --------
    >>> x = torch.tensor([[[1.0], [2.0], [4.0]]])
    >>> causal_conv(x, torch.tensor([[0.5, 1.0]]), torch.zeros(1)).flatten()
    tensor([1.0000, 2.5000, 5.0000])
    """
    if not x.is_cpu:
        return reference(x, weight, bias)
    y: Tensor = _Conv.apply(*widened(x, weight, bias))  # type: ignore[no-untyped-call]
    return y.to(x.dtype)


def reference(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The same by torch's convolution."""
    padded = F.pad(x.transpose(1, 2), (weight.shape[1] - 1, 0))
    return F.conv1d(padded, weight[:, None], bias, groups=len(weight)).transpose(1, 2)


class _Conv(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        ctx.save_for_backward(x, weight)
        y = torch.empty(x.shape, dtype=x.dtype)
        with like_torch():
            _forward(array(x), array(weight.T), array(bias), y.numpy())
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        x, weight = ctx.saved_tensors
        grad_x = torch.empty(x.shape, dtype=x.dtype)
        grad_weight = torch.empty(len(x), *weight.T.shape, dtype=x.dtype)  # summed over the rows afterwards
        with like_torch():
            _backward(array(grad), array(x), array(weight.T), grad_x.numpy(), grad_weight.numpy())
        return grad_x, grad_weight.sum(0).T, grad.sum((0, 1))


@kernel()
def _forward(x: Array, weight: Array, bias: Array, y: Array) -> None:
    rows, length, channels = x.shape
    width = len(weight)
    for row in prange(rows):
        for t in range(length):
            out = y[row, t]
            out[:] = bias
            for w in range(max(0, width - 1 - t), width):
                value, factor = x[row, t - width + 1 + w], weight[w]
                for e in range(channels):
                    out[e] += factor[e] * value[e]


@kernel()
def _backward(grad: Array, x: Array, weight: Array, grad_x: Array, grad_weight: Array) -> None:
    rows, length, channels = x.shape
    width = len(weight)
    for row in prange(rows):
        to_weight = np.zeros((width, channels), x.dtype)
        for t in range(length):
            out = grad_x[row, t]
            out[:] = 0
            for w in range(max(0, width + t - length), width):
                value, factor = grad[row, t + width - 1 - w], weight[w]
                for e in range(channels):
                    out[e] += factor[e] * value[e]
                    to_weight[w, e] += value[e] * x[row, t, e]
        grad_weight[row] = to_weight
