import pytest
import torch
from torch import Tensor

from marsrec.nn.kernels.interval_attention import _IntervalAttention, interval_attention

SEED, H, d, S = 7, 2, 8, 12


def problem(B: int, L: int) -> tuple[Tensor, Tensor, Tensor]:
    """Packed query, key and value as the encoder strides them, packed tables, and intervals with runs and jumps."""
    generator = torch.Generator().manual_seed(0)
    packed, tables = (
        torch.randn(*shape, generator=generator).requires_grad_() for shape in ((B, L, 3, H, d), (2, S, H, d))
    )
    intervals = torch.randint(S, (B, L, L), generator=generator, dtype=torch.int32)
    longer = torch.rand(B, L, L, generator=generator) < 0.7
    intervals[..., 1:] = torch.where(longer[..., 1:], intervals[..., :-1], intervals[..., 1:])
    return packed, tables, intervals


def split(packed: Tensor, tables: Tensor) -> tuple[Tensor, ...]:
    return *packed.permute(2, 0, 3, 1, 4), *tables.transpose(1, 2)


def naive(packed: Tensor, tables: Tensor, intervals: Tensor, kept: Tensor) -> Tensor:
    """With the table's row of each pair written out, which is what the kernel must never hold."""
    query, key, value, key_table, value_table = split(packed, tables)
    L, row = query.shape[2], intervals.long()
    keys = key[:, :, None] + key_table[:, row].transpose(0, 1)  # (B, H, L, L, d)
    values = value[:, :, None] + value_table[:, row].transpose(0, 1)
    scores = torch.einsum("bhid,bhijd->bhij", query, keys) / d**0.5
    weights = scores.masked_fill(torch.ones(L, L, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    return torch.einsum("bhij,bhijd->bhid", weights * kept, values)


def mask(B: int, L: int, p: float) -> Tensor:
    """Factors of the weights, read off an attention of equal weights to values that tell the positions apart."""
    zeros, table, ones = torch.zeros(B, H, L, L), torch.zeros(H, 1, L), torch.eye(L).expand(B, H, L, L)
    same = torch.zeros(B, L, L, dtype=torch.int32)
    weights = _IntervalAttention.apply(zeros, zeros, ones, table, table, same, p, SEED)
    return weights * torch.arange(1, L + 1)[:, None]


@pytest.mark.parametrize(("B", "L", "p"), [(3, 130, 0.3), (40, 9, 0.0), (4, 1, 0.3), (0, 5, 0.3)])
def test_values_and_gradients_equal_a_naive_attention_with_the_same_mask(B, L, p):
    packed, tables, intervals = problem(B, L)
    kept = mask(B, L, p)
    assert set(kept.double().round(decimals=4).unique().tolist()) <= {0.0, 1.0, round(1 / (1 - p), 4)}
    expected = naive(packed.double(), tables.double(), intervals, kept.double())
    mixed = _IntervalAttention.apply(*split(packed, tables), intervals, p, SEED)
    torch.testing.assert_close(mixed.double(), expected, rtol=1e-4, atol=1e-5)
    slope = torch.linspace(-1, 1, mixed.numel()).view_as(mixed)
    gradients = (torch.autograd.grad(x, (packed, tables), slope.to(x)) for x in (mixed, expected))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_the_reference_is_the_same_function():
    packed, tables, intervals = problem(3, 20)
    query, key, value, *both = split(packed.double(), tables.double())
    found = interval_attention(query, key, value, intervals, *both)
    ones = torch.ones(3, H, 20, 20, dtype=torch.float64)
    expected = naive(packed.double(), tables.double(), intervals, ones)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_pieces_and_threads_change_nothing(monkeypatch):
    packed, tables, intervals = problem(5, 16)
    whole = _IntervalAttention.apply(*split(packed, tables), intervals, 0.4, SEED)
    expected = whole, *torch.autograd.grad(whole.sin().sum(), (packed, tables))
    monkeypatch.setattr("marsrec.nn.kernels.attention.CHUNK", 7)
    monkeypatch.setattr("marsrec.nn.kernels.attention.BUFFER", 150)
    threads = torch.get_num_threads()
    for count in (1, 2):
        torch.set_num_threads(count)
        mixed = _IntervalAttention.apply(*split(packed, tables), intervals, 0.4, SEED)
        for mine, other in zip(
            (mixed, *torch.autograd.grad(mixed.sin().sum(), (packed, tables))), expected, strict=True
        ):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)
    torch.set_num_threads(threads)
