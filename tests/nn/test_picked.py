"""States where they are asked for, against plain indexing."""

import pytest
import torch

from marsrec.nn.encoders.base import picked


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_picked_equals_indexing_in_value_and_gradient(first: int, share: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 2, requires_grad=True)
    asked = torch.rand(3, 5 - first) < share
    got, wanted = picked(x[:, first:], asked), x[:, first:][asked]
    assert torch.equal(got, wanted)
    slope = torch.randn_like(wanted)
    assert torch.equal(*(torch.autograd.grad(part, x, slope)[0] for part in (got, wanted)))
