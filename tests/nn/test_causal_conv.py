"""The causal depthwise convolution against torch's."""

import pytest
import torch

from marsrec.nn.kernels.causal_conv import causal_conv, reference


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("shape", [(2, 9, 5, 4), (3, 1, 7, 4), (1, 3, 70, 4), (2, 130, 8, 2), (0, 4, 5, 4)], ids=str)
def test_output_and_gradients_are_those_of_torch(shape, dtype) -> None:
    rows, length, channels, width = shape
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, channels, length, generator=generator, dtype=torch.float64).transpose(1, 2)  # strided
    weight = torch.randn(channels, width, generator=generator, dtype=torch.float64)
    bias = torch.randn(channels, generator=generator, dtype=torch.float64)
    direction = torch.randn(rows, length, channels, generator=generator, dtype=torch.float64)
    results = []
    for run, kind in ((causal_conv, dtype), (reference, torch.float64)):
        leaves = [part.to(kind).requires_grad_() for part in (x, weight, bias)]
        y = run(*leaves)
        results.append([y, *torch.autograd.grad(y, leaves, direction.to(kind))])
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=tolerance, atol=tolerance)


def test_gradcheck() -> None:
    leaves = [torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((2, 6, 3), (3, 4), (3,))]
    assert torch.autograd.gradcheck(causal_conv, leaves)
