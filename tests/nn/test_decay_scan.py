"""The numba kernel against the recurrence written out in torch."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from marsrec.nn.kernels.decay_scan import LEAST, decay_scan


def inputs(B: int, L: int, d: int, K: int, M: int, first: int) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(B, L, d), torch.rand(B, L, M), torch.rand(B, L - first, K, M)]


def with_gradients(arguments: list[Tensor], first: int) -> list[Tensor]:
    states, decays, mix = arguments
    states, mix = states.detach().requires_grad_(), mix.detach().requires_grad_()
    averages = decay_scan(states, decays, mix, first)
    torch.manual_seed(1)
    grad = torch.randn(averages.shape, dtype=torch.float64).to(averages)
    return [averages, *torch.autograd.grad(averages, (states, mix), grad)]


def assert_exact(arguments: list[Tensor], first: int) -> None:
    """The kernel, in single precision, against the recurrence in double precision."""
    expected = with_gradients([part.double() for part in arguments], first)
    for found, exact in zip(with_gradients(arguments, first), expected, strict=True):
        assert found.dtype == torch.float32
        if exact.numel():
            assert (found - exact).abs().max() <= 1e-5 * exact.abs().max() + 1e-6


@pytest.mark.parametrize(
    "shape",
    # (B, L, d, K, M, first)
    [(2, 9, 5, 3, 7, 0), (1, 1, 4, 1, 1, 0), (2, 257, 8, 4, 8, 100), (3, 6, 3, 5, 4, 5), (0, 4, 3, 2, 4, 1)],
)
def test_kernel_equals_the_recurrence(shape: tuple[int, ...]) -> None:
    assert_exact(inputs(*shape), shape[-1])


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 3), st.integers(1, 5), st.integers(0, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9))
def test_any_shape(B: int, Q: int, first: int, d: int, K: int, M: int) -> None:
    assert_exact(inputs(B, first + Q, d, K, M, first), first)


def test_where_the_total_is_too_small_the_fastest_rate_stands_in() -> None:
    states, decays, mix = inputs(3, 12, 5, 6, 7, 2)
    mix = 2 * mix - 0.9  # the newest event weighs 0.7 on average, sometimes less than nothing
    expected = with_gradients([states.double(), decays.double(), mix.double()], 2)
    found = with_gradients([states, decays, mix], 2)
    torch.testing.assert_close([part.double() for part in found], expected, rtol=1e-4, atol=1e-4)
    sums, counts, lost = torch.zeros(3, 7, 5), torch.zeros(3, 7, 1), 0
    for t in range(12):
        sums, counts = decays[:, t, :, None] * sums + states[:, t, None], decays[:, t, :, None] * counts + 1
        for b, k in ((b, k) for b in range(3) for k in range(6) if t >= 2):
            head, total = mix[b, t - 2, k], (mix[b, t - 2, k] @ counts[b]).item()
            average = (head @ sums[b]) / total if total >= LEAST else sums[b, -1] / counts[b, -1]
            torch.testing.assert_close(found[0][b, t - 2, k], average, rtol=1e-4, atol=1e-5)
            assert (found[2][b, t - 2, k] == 0).all() == (total < LEAST)  # no gradient by coefficients without a say
            lost += total < LEAST
    assert 20 < lost < 160  # of 180


def test_layout_and_no_grad_change_nothing() -> None:
    arguments = inputs(3, 10, 4, 4, 5, 2)
    turned = [part.transpose(0, 1).contiguous().transpose(0, 1) for part in arguments]
    assert not turned[0].is_contiguous()
    expected = with_gradients(arguments, 2)
    for found, plain in zip(with_gradients(turned, 2), expected, strict=True):
        assert torch.equal(found, plain)
    with torch.no_grad():
        assert torch.equal(decay_scan(*turned, first=2), expected[0])


def test_threads_change_nothing() -> None:
    arguments = inputs(5, 40, 8, 4, 8, 0)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(with_gradients(arguments, 0))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    for one, two in zip(*results, strict=True):
        assert torch.equal(one, two)


def test_nothing_to_read_out() -> None:
    for implementation in ("reference", "auto"):
        assert decay_scan(*inputs(3, 4, 2, 5, 6, 4), first=4, implementation=implementation).shape == (3, 0, 5, 2)  # type: ignore[arg-type]


def test_shapes_that_do_not_fit_are_named() -> None:
    states, decays, mix = inputs(2, 5, 3, 2, 4, 1)
    with pytest.raises(ValueError, match=r"first=0"):
        decay_scan(states, decays, mix)


def test_gradients_fade_to_zero_and_not_to_numbers_that_are_slow_to_compute_with() -> None:
    states = torch.ones(1, 300, 4, requires_grad=True)
    decays, mix = torch.full((1, 300, 1), 0.5), torch.ones(1, 1, 1, 1)
    averages = decay_scan(states, decays, mix, 299)
    (gradient,) = torch.autograd.grad(averages.sum(), states)
    assert (gradient[:, -90:] != 0).all()
    assert not ((gradient != 0) & (gradient.abs() < torch.finfo(torch.float32).tiny)).any()
