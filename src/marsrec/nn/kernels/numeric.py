"""What the numba kernels share: exponential, logarithm and maximum that vectorise, and how tensors reach them.

Kernels compute in float32, in which models are trained; other numbers take the plain torch form beside each kernel.
"""

import math
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.compute.compiled import kernel

Array = NDArray[np.float32]
Implementation = Literal["auto", "reference"]
"""The kernel where it `fits`, else plain torch; or plain torch in any case."""

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
NEGLIGIBLE = np.float32(1e-30)
"""What is smaller counts as zero where numbers fade. Below 1e-38 they would be subnormal, and each operation with one
takes a hundred times as long on Intel's CPUs."""

_LOG2_E = np.float32(1.4426950408889634)
_LOWEST, _HIGHEST = np.float32(math.log(NEGLIGIBLE)), np.float32(88.0)
# Minimax coefficients of 2^f on |f| <= 1/2 with 2^0 = 1 exactly: relative error 9e-8.
_E1, _E2, _E3 = np.float32(0.6931469775973969), np.float32(0.24022242084014458), np.float32(0.05550733745817429)
_E4, _E5 = np.float32(0.009671512702074949), np.float32(0.0013264726422827268)
_MANTISSA_BITS, _INT_ONE = np.int32(23), np.int32(1)


def array(tensor: Tensor) -> Array:
    """A tensor's values as a kernel wants them: in order, and without their history."""
    values: Array = tensor.detach().contiguous().numpy()
    return values


def fits(*tensors: Tensor) -> bool:
    """Whether kernels take these as they are: float32 on the CPU, outside of autocast."""
    kinds = {(tensor.device.type, tensor.dtype) for tensor in tensors}
    return kinds == {("cpu", torch.float32)} and not torch.is_autocast_enabled("cpu")


def widened(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Floating-point tensors in one kind of number, of 32 bits at least."""
    dtype = torch.float32
    for tensor in tensors:
        dtype = torch.promote_types(dtype, tensor.dtype)
    return tuple(tensor.to(dtype) for tensor in tensors)


@kernel(parallel=False)
def exp(x: Any) -> Any:
    """e^x as a polynomial, which a loop does for many numbers at once.

    A call into the C library, which LLVM cannot vectorise, costs several times as much. The relative error is below
    3e-7 near zero and grows with |x| as the rounding of x does, to 4e-6. What is below `NEGLIGIBLE` is 0, and nothing
    is above e^88.
    """
    inside = min(max(x, _LOWEST), _HIGHEST)
    whole = np.rint(inside * _LOG2_E)
    f = inside * _LOG2_E - whole
    p = np.float32(((((_E5 * f + _E4) * f + _E3) * f + _E2) * f + _E1) * f + ONE)
    # Adding to the exponent bits multiplies by a power of two.
    bits = np.int32(p.view(np.int32) + (np.int32(whole) << _MANTISSA_BITS))
    kept = np.int32(np.int32(x < _LOWEST) - _INT_ONE)  # all bits, or none
    return np.int32(bits & kept).view(np.float32)


# log 2 in two parts: the first has few bits, so that its product with a whole number is exact.
_LN2_HIGH, _LN2_LOW, _HALF = np.float32(0.693359375), np.float32(-2.12194440e-4), np.float32(0.5)
_SQRT_HALF_BITS = np.int32(0x3F3504F3)
# Minimax coefficients of (log(1 + r) - r + r² / 2) / r³ on sqrt(1/2) <= 1 + r < sqrt(2), from the Cephes library.
_D0, _D1, _D2 = np.float32(7.0376836292e-2), np.float32(-1.1514610310e-1), np.float32(1.1676998740e-1)
_D3, _D4, _D5 = np.float32(-1.2420140846e-1), np.float32(1.4249322787e-1), np.float32(-1.6668057665e-1)
_D6, _D7, _D8 = np.float32(2.0000714765e-1), np.float32(-2.4999993993e-1), np.float32(3.3333331174e-1)


@kernel(parallel=False)
def log1p(x: Any) -> Any:
    """log(1 + x) for x >= 0, as a polynomial; the error is below 2e-7 of the result or below 1e-7."""
    bits = np.float32(x + ONE).view(np.int32)  # 1 + x = 2^whole · (1 + r)
    whole = np.int32(np.int32(bits - _SQRT_HALF_BITS) >> _MANTISSA_BITS)
    r = np.int32(bits - np.int32(whole << _MANTISSA_BITS)).view(np.float32) - ONE
    p = ((((_D0 * r + _D1) * r + _D2) * r + _D3) * r + _D4) * r + _D5
    p = (((p * r + _D6) * r + _D7) * r + _D8) * r * r * r
    scale = np.float32(whole)
    return scale * _LN2_LOW + p - _HALF * r * r + r + scale * _LN2_HIGH


_SIGN_BIT, _OTHER_BITS = np.int32(31), np.int32(0x7FFFFFFF)


@kernel(parallel=False)
def largest(values: Any) -> Any:
    """The largest of at least one value. LLVM compares integers many at a time, but not floats, which may be NaN."""
    top = _ordered(values[0])
    for j in range(len(values)):
        top = max(top, _ordered(values[j]))
    return np.int32(top ^ np.int32(np.int32(top >> _SIGN_BIT) & _OTHER_BITS)).view(np.float32)


@kernel(parallel=False)
def _ordered(x: Any) -> Any:
    """An integer that is ordered like x."""
    bits = np.float32(x).view(np.int32)
    return np.int32(bits ^ np.int32(np.int32(bits >> _SIGN_BIT) & _OTHER_BITS))
