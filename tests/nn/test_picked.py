"""States at chosen positions, against plain indexing."""

import pytest
import torch

from marsrec.nn.encoders.base import picked


@pytest.mark.parametrize("first", [0, 2])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_picked_equals_indexing_in_value_and_gradient(first: int, share: float) -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 5, 2, requires_grad=True)
    chosen = torch.rand(3, 5 - first) < share
    states, expected = picked(x[:, first:], chosen), x[:, first:][chosen]
    assert torch.equal(states, expected)
    slope = torch.randn_like(expected)
    assert torch.equal(*(torch.autograd.grad(part, x, slope)[0] for part in (states, expected)))
