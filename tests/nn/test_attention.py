import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from marsrec.nn.kernels.attention import _CausalAttention, causal_attention

SEED = 7


def problem(B: int, L: int, scale: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return (scale * torch.randn(B, L, 3, 2, 8, generator=generator)).requires_grad_()


def split(packed: Tensor) -> Tensor:
    return packed.permute(2, 0, 3, 1, 4)  # query, key and value (B, H, L, d), as strided as in the encoder


def mask(B: int, L: int, p: float) -> Tensor:
    """What is kept, read off an attention of equal weights to values that tell the positions apart."""
    zeros, ones = torch.zeros(B, 2, L, L), torch.eye(L).expand(B, 2, L, L)
    return _CausalAttention.apply(zeros, zeros, ones, p, SEED) != 0


@pytest.mark.parametrize(("chunk", "buffer"), [(64, 1 << 18), (2, 20)])
@pytest.mark.parametrize(("B", "L", "p"), [(3, 130, 0.3), (20, 65, 0.0), (3, 5, 0.4), (4, 1, 0.3), (0, 5, 0.3)])
def test_values_and_gradients_equal_a_reference_with_the_same_mask(B, L, p, chunk, buffer, monkeypatch):
    monkeypatch.setattr("marsrec.nn.kernels.attention.CHUNK", chunk)
    monkeypatch.setattr("marsrec.nn.kernels.attention.BUFFER", buffer)
    packed = problem(B, L)
    query, key, value = split(packed.double())
    weights = (query @ key.mT / 8**0.5).masked_fill(torch.ones(L, L, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    expected = weights * mask(B, L, p) / (1 - p) @ value
    mixed = _CausalAttention.apply(*split(packed), p, SEED)
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-5, atol=1e-5)
    slope = torch.linspace(-1, 1, mixed.numel()).view_as(mixed)
    (mine,), (other,) = (torch.autograd.grad(result, packed, slope.to(result)) for result in (mixed, expected))
    torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-5)


def test_weights_are_dropped_at_the_rate_and_independently():
    kept = mask(20, 150, 0.2)
    lower = torch.ones(150, 150, dtype=torch.bool).tril()
    assert not (kept & ~lower).any()
    assert abs(kept[..., lower].double().mean() - 0.8) < 4 * (0.16 / (40 * int(lower.sum()))) ** 0.5
    centred = torch.where(lower, kept.double() - 0.8, 0) / 0.4
    pairs = (  # rows below each other, columns, heads, histories
        centred[:, :, 1:] * centred[:, :, :-1],
        centred[..., 1:] * centred[..., :-1],
        centred[:, 0] * centred[:, 1],
        centred[1:] * centred[:-1],
    )
    for pair in pairs:
        assert abs(pair.sum()) < 4 * int((pair != 0).sum()) ** 0.5


def test_the_seed_decides_and_not_the_threads():
    query, key, value = split(problem(5, 90))
    threads, results = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        torch.manual_seed(3)
        results.append(causal_attention(query, key, value, 0.3))
    torch.set_num_threads(threads)
    torch.testing.assert_close(*results, rtol=1e-6, atol=1e-6)
    assert not torch.allclose(results[0], causal_attention(query, key, value, 0.3))


def test_large_products_neither_overflow_nor_vanish():
    packed = problem(2, 30, scale=100)
    mixed = _CausalAttention.apply(*split(packed), 0.0, SEED)
    torch.testing.assert_close(mixed, F.scaled_dot_product_attention(*split(packed), is_causal=True))
    assert torch.isfinite(torch.autograd.grad(mixed.sum(), packed)[0]).all()
