import pytest
import torch

from marsrec.nn.kernels.dropout import Dropout, dropout

N = 1 << 20


@pytest.mark.parametrize("p", [0.1, 0.2, 0.5, 0.9])
def test_rate_and_scale(p):
    torch.manual_seed(0)
    dropped = dropout(torch.full((N,), 3.0), p)
    kept = dropped != 0
    torch.testing.assert_close(dropped[kept], torch.full((int(kept.sum()),), 3 / (1 - p)))
    assert abs(kept.double().mean() - (1 - p)) < 4 * (p * (1 - p) / N) ** 0.5


def test_elements_and_calls_are_independent():
    torch.manual_seed(0)
    first, second = (dropout(torch.ones(N), 0.5) - 1 for _ in range(2))  # -1 or 1
    assert abs((first * second).mean()) < 4 / N**0.5
    for lag in (1, 2, 3, 16, 64, 1024, 2048):
        assert abs((first[:-lag] * first[lag:]).mean()) < 4 / N**0.5
    # Each place of a block of 1,024, over the blocks, and each block, over its places.
    for squares, count in ((first.view(-1, 1024).mean(0) ** 2, 1024), (first.view(-1, 1024).mean(1) ** 2, 1024)):
        assert squares.mean().item() * N / count == pytest.approx(1, abs=0.2)


def test_the_seed_decides_and_not_the_threads():
    x, threads, results = torch.randn(7, 5, 333), torch.get_num_threads(), []
    for count in (1, 2):
        torch.set_num_threads(count)
        torch.manual_seed(3)
        results.append(dropout(x, 0.3))
    torch.set_num_threads(threads)
    assert torch.equal(*results)
    assert not torch.equal(results[0], dropout(x, 0.3))


@pytest.mark.parametrize("shape", [(3, 1, 700), (0, 4), ()])
def test_the_gradient_has_the_same_mask(shape):
    x = torch.ones(shape, requires_grad=True)
    dropped = dropout(x.mT if x.ndim > 1 else x, 0.4)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient.mT if x.ndim > 1 else gradient, dropped)


def test_nothing_is_dropped_in_evaluation_or_at_rate_0():
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x
