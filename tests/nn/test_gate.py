import pytest
import torch
from torch import Tensor

from marsrec.nn.kernels.gate import gated_sum


def problem(shape: tuple[int, ...], K: int = 3, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((*shape, K, 6), (10, 6), (*shape, 10), (10,))
    return [torch.randn(size, dtype=dtype, generator=generator).requires_grad_() for size in sizes]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-9), (torch.float32, 1e-5)])
@pytest.mark.parametrize(("shape", "K"), [((3, 67), 8), ((5, 1), 1), ((0, 4), 2)])
def test_values_and_gradients_equal_the_references(dtype, tolerance, shape, K):
    inputs, results = problem(shape, K, dtype), []
    for implementation in ("cpu", "reference"):
        sums, gate = gated_sum(*inputs, implementation=implementation)
        results.append([sums, gate, *torch.autograd.grad(sums.sin().sum() + gate.square().sum(), inputs)])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=10 * tolerance, atol=tolerance)


def test_gradcheck_and_strided_inputs():
    inputs = problem((2, 2))
    assert torch.autograd.gradcheck(
        lambda *parts: gated_sum(*(part.mT.contiguous().mT if part.ndim > 1 else part for part in parts)), inputs
    )


def test_large_inputs_are_finite():
    inputs = [(1e4 * part).detach().requires_grad_() for part in problem((2, 3), dtype=torch.float32)]
    sums, gate = gated_sum(*inputs)
    gradients = torch.autograd.grad(sums.sum(), inputs)
    assert all(torch.isfinite(value).all() for value in (sums, gate, *gradients))
