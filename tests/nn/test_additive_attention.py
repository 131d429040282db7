import pytest
import torch
from torch import Tensor

from marsrec.nn.kernels.additive_attention import additive_attention


def problem(B: int, L: int, Q: int, H: int = 11) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = ((B, L, H), (B, Q, H), (H,))
    return [torch.randn(size, generator=generator).requires_grad_() for size in sizes]


@torch.no_grad()
def test_scores_of_the_plain_form_are_those_of_the_definition():
    keys, queries, v = (part.double() for part in problem(2, 5, 3))
    scores = additive_attention(keys, queries, v)
    assert scores.shape == (2, 3, 5)
    for b in range(2):
        for i in range(3):
            for j in range(5):
                seen = j <= i + 2  # three queries of five events: the first of them stands at event 2
                expected = v @ torch.sigmoid(keys[b, j] + queries[b, i]) if seen else torch.zeros_like(v[0])
                torch.testing.assert_close(scores[b, i, j], expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("B", "L", "Q", "H"), [(3, 70, 70, 11), (2, 70, 9, 150), (5, 1, 1, 8), (0, 4, 4, 8), (3, 4, 0, 8)]
)
def test_values_and_gradients_equal_the_plain_forms(B, L, Q, H):
    inputs, results = problem(B, L, Q, H), []
    for parts in (inputs, [part.double() for part in inputs]):
        strided = [part.mT.contiguous().mT if part.ndim > 1 else part for part in parts]
        scores = additive_attention(*strided)
        slope = torch.linspace(-1, 1, scores.numel()).view_as(scores).to(scores) / L
        results.append([scores.double(), *torch.autograd.grad(scores, inputs, slope)])
    for mine, other in zip(*results, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_large_inputs_are_finite_and_saturate():
    keys, queries, v = problem(2, 3, 3)
    large = [(1e4 * part).detach().requires_grad_() for part in (keys, queries)]
    gradients = torch.autograd.grad(additive_attention(*large, v).sum(), (*large, v))
    assert all(torch.isfinite(value).all() for value in gradients)
    for sign, limit in ((1, v.sum()), (-1, torch.zeros_like(v[0]))):
        far = torch.full_like(keys, sign * 1e4)
        for query in (far, torch.zeros_like(far)):
            scores = additive_attention(far, query, v)
            torch.testing.assert_close(scores, limit.expand(2, 3, 3).tril(), rtol=1e-5, atol=1e-5)


def test_half_precision_takes_the_reference():
    keys, queries, v = (part.detach().bfloat16() for part in problem(2, 4, 4))
    scores = additive_attention(keys, queries, v)
    assert scores.dtype == torch.bfloat16
    expected = additive_attention(keys.float(), queries.float(), v.float())
    torch.testing.assert_close(scores.float(), expected, rtol=0.05, atol=0.05)


def test_threads_change_nothing():
    inputs = problem(5, 33, 33, H=140)
    threads, results = torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        scores = additive_attention(*inputs)
        results.append((scores, *torch.autograd.grad(scores.square().sum(), inputs)))
    torch.set_num_threads(threads)
    for one, two in zip(*results, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)
