import sys

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from marsrec.nn.kernels.linear_cross_entropy import NegativeSampler, linear_cross_entropy, sampled_softmax


def problem(
    count: int = 150, catalog: int = 37, dtype: torch.dtype = torch.float64, scale: float = 1.0
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    users = (scale * torch.randn(count, 8, dtype=dtype, generator=generator)).requires_grad_()
    items = torch.randn(catalog, 8, dtype=dtype, generator=generator).requires_grad_()
    bias = torch.randn(catalog, dtype=dtype, generator=generator).requires_grad_()
    return users, items, torch.randint(catalog, (count,), generator=generator), bias


def reference(users: Tensor, items: Tensor, targets: Tensor, bias: Tensor | None = None) -> Tensor:
    return F.cross_entropy(F.linear(users, items, bias), targets)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
@pytest.mark.parametrize("count", [1, 64, 150])
@pytest.mark.parametrize("with_bias", [True, False])
def test_loss_and_gradients_equal_torchs(dtype, tolerance, count, with_bias):
    users, items, targets, bias = problem(count, dtype=dtype)
    inputs = [users, items] + [bias] * with_bias
    ours = linear_cross_entropy(users, items, targets, bias=bias if with_bias else None, chunk_rows=64)
    theirs = reference(users, items, targets, bias if with_bias else None)
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    # An incoming gradient that is not 1 must scale all of them.
    for mine, other in zip(
        torch.autograd.grad(-3 * ours, inputs), torch.autograd.grad(-3 * theirs, inputs), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "needs", [(True, False, False), (False, True, False), (False, False, True), (True, True, True)]
)
def test_gradcheck_for_any_part_of_the_inputs(needs):
    users, items, targets, bias = problem(count=5, catalog=7)
    inputs = [tensor.detach().requires_grad_(need) for tensor, need in zip((users, items, bias), needs, strict=True)]
    assert torch.autograd.gradcheck(lambda u, v, b: linear_cross_entropy(u, v, targets, bias=b, chunk_rows=2), inputs)


def test_what_is_left_out_competes_nowhere_and_gets_no_gradient():
    users, items, targets, bias = problem(count=9, catalog=7)
    left_out = (targets + 1) % 7
    ours = linear_cross_entropy(users, items, targets, bias=bias, left_out=left_out, chunk_rows=4)
    logits = F.linear(users, items, bias).scatter(1, left_out[:, None], -torch.inf)
    theirs = F.cross_entropy(logits, targets)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    gradients = (torch.autograd.grad(loss, [users, items, bias]) for loss in (ours, theirs))
    for mine, other in zip(*gradients, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)
    with pytest.raises(ValueError, match=r"left_out must be one row of items per user, 9, got \(8,\)"):
        linear_cross_entropy(users, items, targets, left_out=left_out[1:])


def test_large_logits_neither_overflow_nor_lose_the_loss():
    users, items, targets, _ = problem(dtype=torch.float32, scale=1e4)
    ours, theirs = linear_cross_entropy(users, items, targets), reference(users, items, targets)
    assert ours > 1e4
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(
        torch.autograd.grad(ours, [users, items]), torch.autograd.grad(theirs, [users, items]), strict=True
    ):
        assert (mine - other).norm() < 1e-6 * other.norm()


def test_part_of_a_table_and_strided_inputs():
    users, _, targets, _ = problem(count=20, catalog=30)
    table = torch.randn(31, 8, dtype=torch.float64).requires_grad_()
    strided_users = torch.stack([users, users], 2)[..., 0]
    (ours,) = torch.autograd.grad(linear_cross_entropy(strided_users, table[1:], targets), table)
    (theirs,) = torch.autograd.grad(reference(users, table[1:], targets), table)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    assert not ours[0].any(), "the padding row got a gradient"
    transposed = table.detach().T.contiguous().T  # (31, 8), columns first in memory
    torch.testing.assert_close(linear_cross_entropy(users, transposed, targets), reference(users, transposed, targets))


def test_no_positions_give_zero_and_zero_gradients():
    users, items, targets, _ = problem(count=0)
    loss = linear_cross_entropy(users, items, targets)
    loss.backward()
    assert loss.item() == 0
    assert users.grad is not None
    assert users.grad.shape == (0, 8)
    assert items.grad is not None
    assert not items.grad.any()


def test_without_gradients_none_are_computed(monkeypatch):
    def refuse(*_args, **_kwargs):
        raise AssertionError("a gradient was accumulated")

    users, items, targets, _ = problem()
    expected = reference(users, items, targets).detach()
    monkeypatch.setattr(Tensor, "index_add_", refuse)
    with torch.no_grad():
        loss = linear_cross_entropy(users, items, targets)
    assert not loss.requires_grad
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(linear_cross_entropy(users.detach(), items.detach(), targets), expected)


class LargestTensor(TorchDispatchMode):
    numel = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            self.numel = max(self.numel, result.numel())
        return result


def test_only_a_chunk_of_logits_is_held():
    users, items, targets, _ = problem(count=1000, catalog=800, dtype=torch.float32)
    with LargestTensor() as largest:
        linear_cross_entropy(users, items, targets, chunk_rows=10).backward()
    assert largest.numel == 1000 * 8  # the gradient of the users; a chunk of logits has 800 * 10, all have 800 * 1000


def test_differentiating_twice_is_refused():
    users, items, targets, _ = problem(count=3)
    with pytest.raises(RuntimeError, match=r"cannot be differentiated twice; .* use F.cross_entropy"):
        torch.autograd.grad(linear_cross_entropy(users, items, targets), users, create_graph=True)


def test_half_precision_users_with_a_float32_table():
    users, items, targets, bias = problem(dtype=torch.float32)
    half = users.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = linear_cross_entropy(half, items, targets, bias=bias, chunk_rows=64)
    expected = reference(users, items, targets, bias)
    assert loss.dtype == torch.float32
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
    ours = torch.autograd.grad(loss, [half, items, bias])
    assert [gradient.dtype for gradient in ours] == [torch.bfloat16, torch.float32, torch.float32]
    for mine, other in zip(ours, torch.autograd.grad(expected, [users, items, bias]), strict=True):
        assert (mine.float() - other).norm() < 0.02 * other.norm()


def test_wrong_shapes_and_targets_are_named():
    users, items, targets, bias = problem(count=4)
    with pytest.raises(ValueError, match=r"targets \(N,\), got \(4, 8\), \(37, 8\) and \(1,\)"):
        linear_cross_entropy(users, items, targets[:1])
    with pytest.raises(ValueError, match=r"one bias per item, 37, got \(36,\)"):
        linear_cross_entropy(users, items, targets, bias=bias[1:])
    for wrong in (37, -1):
        with pytest.raises((IndexError, RuntimeError), match=f"index {wrong} is out of bounds"):
            linear_cross_entropy(users, items, torch.full((4,), wrong))


def test_sampled_softmax_with_every_item_as_often_as_expected_is_the_full_softmax():
    users, items, targets, _ = problem(count=20, catalog=9)
    draws = torch.arange(9) % 3 + 1  # items drawn once, twice, three times
    negatives = torch.arange(9).repeat_interleave(draws)
    log_q = draws.double().log()[negatives]
    sampled = sampled_softmax(users, items, targets, negatives, log_q_negatives=log_q)
    full = reference(users, items, targets)
    torch.testing.assert_close(sampled, full, rtol=1e-12, atol=1e-12)
    for mine, other in zip(
        torch.autograd.grad(sampled, [users, items]), torch.autograd.grad(full, [users, items]), strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-10, atol=1e-12)


def test_sampled_gradient_is_nearly_unbiased_with_log_q_and_not_without():
    users, items, targets, _ = problem(count=20, catalog=30, scale=0.3)
    sampler = NegativeSampler(1 / torch.arange(1.0, 31.0))  # Zipf's popularity
    generator = torch.Generator().manual_seed(1)
    corrected, raw = torch.zeros_like(items), torch.zeros_like(items)
    for _ in range(300):
        negatives, log_q = sampler.draw(300, generator)
        for total, correction in ((corrected, log_q), (raw, torch.full_like(log_q, 300 / 30).log())):
            loss = sampled_softmax(users, items, targets, negatives, log_q_negatives=correction)
            total += torch.autograd.grad(loss, items)[0] / 300
    (full,) = torch.autograd.grad(reference(users, items, targets), items)
    assert (corrected - full).norm() < 0.02 * full.norm()
    assert (raw - full).norm() > 0.1 * full.norm()


def test_a_negative_that_is_the_target_does_not_compete_with_it():
    users, items = torch.ones(1, 1), torch.tensor([[1.0], [2.0]])
    loss = sampled_softmax(users, items, torch.tensor([1]), torch.tensor([1, 1, 0]), log_q_negatives=torch.zeros(3))
    torch.testing.assert_close(loss, F.cross_entropy(torch.tensor([[1.0, 2.0]]), torch.tensor([1])))


def test_sampler_draws_in_proportion_and_repeats_with_its_generator():
    sampler = NegativeSampler(torch.tensor([1.0, 0.0, 3.0, 0.0]))
    negatives, log_q = sampler.draw(40_000, torch.Generator().manual_seed(0))
    again, _ = sampler.draw(40_000, torch.Generator().manual_seed(0))
    assert torch.equal(negatives, again)
    counts = torch.bincount(negatives, minlength=4)
    assert counts[[1, 3]].tolist() == [0, 0]
    assert abs(counts[2].item() - 30_000) < 500
    torch.testing.assert_close(log_q.exp(), torch.tensor([10_000.0, 0, 30_000.0, 0])[negatives], rtol=1e-4, atol=0)


def test_gradients_do_not_vanish_in_float16() -> None:
    """A loss is scaled up only after its gradients were made; a single item's are far below what float16 can hold."""
    torch.manual_seed(0)
    items = (0.1 * torch.randn(12_000, 16)).requires_grad_()
    users, targets = (0.1 * torch.randn(256, 16)).half(), torch.randint(12_000, (256,))
    half = users.clone().requires_grad_()
    scale = 65_536.0
    found = torch.autograd.grad(scale * linear_cross_entropy(half, items, targets), (half, items))
    whole = users.float().requires_grad_()
    expected = torch.autograd.grad(scale * F.cross_entropy(whole @ items.T, targets), (whole, items))
    assert found[0].dtype == torch.float16
    torch.testing.assert_close(found[0].float(), expected[0], rtol=2e-3, atol=1e-2)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("catalog", "rows"), [(10, 512), (3416, 306), (20_000, 128)])
def test_rows_that_are_held_at_once_by_default(catalog: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules[linear_cross_entropy.__module__]
    held, exponentiate = [], module._exponentiate
    monkeypatch.setattr(module, "_exponentiate", lambda logits: (held.append(len(logits)), exponentiate(logits))[1])
    linear_cross_entropy(torch.randn(1100, 2), torch.randn(catalog, 2), torch.zeros(1100, dtype=torch.int64))
    assert (max(held), sum(held)) == (rows, 1100)
