"""The selective scan: the CPU kernel against the recurrence in float64, and against another library's."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from marsrec.errors import SettingsError
from marsrec.nn.kernels import selective_scan as module
from marsrec.nn.kernels.selective_scan import chosen, continued_scan, reference, selective_scan

needs_cuda = pytest.mark.skipif(
    not torch.cuda.is_available() or chosen("cuda") != "cuda", reason="needs a GPU and mamba-ssm"
)
IMPLEMENTATIONS = ["cpu", pytest.param("cuda", marks=needs_cuda)]
SHAPES = [  # rows, positions, channels, states
    (2, 7, 3, 4),
    (3, 1, 64, 16),
    (2, 257, 70, 32),
    (1, 33, 128, 33),
    (4, 16, 65, 1),
    (9, 20, 5, 4),  # short rows share a sum: three groups of three
    (0, 5, 8, 16),
]


def inputs(rows: int, length: int, channels: int, states: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(length)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    x, delta = normal(rows, length, channels), (normal(rows, length, channels) - 2).exp()
    A = -torch.arange(1, states + 1).to(dtype) * normal(channels, states).exp()
    return [x, delta, A, normal(rows, length, states), normal(rows, length, states), normal(channels)]


def exact(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """The recurrence in double precision."""
    return reference(*(part.double() for part in (x, delta, A, B, C, D)))[0]


def output_and_gradients(run, tensors: list[Tensor], device: str = "cpu") -> list[Tensor]:
    leaves = [tensor.to(device, copy=True).requires_grad_() for tensor in tensors]
    y = run(*leaves)
    direction = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    grads = torch.autograd.grad(y, leaves, direction.to(y))
    return [part.detach().cpu().double() for part in (y, *grads)]


def assert_close(found: list[Tensor], expected: list[Tensor]) -> None:
    """To single precision, by the largest of each."""
    for one, other in zip(found, expected, strict=True):
        scale = other.abs().max().item() if other.numel() else 0.0
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * max(scale, 1e-30))


@pytest.mark.parametrize("implementation", IMPLEMENTATIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_output_and_all_six_gradients_are_those_of_the_recurrence(shape, implementation) -> None:
    tensors = inputs(*shape)
    device = "cuda" if implementation == "cuda" else "cpu"
    found = output_and_gradients(lambda *a: selective_scan(*a, implementation=implementation), tensors, device)
    assert_close(found, output_and_gradients(exact, tensors))


def test_a_sequence_without_positions_gives_zero_gradients() -> None:
    y, *gradients = output_and_gradients(selective_scan, inputs(2, 0, 8, 16))
    assert y.shape == (2, 0, 8)
    assert all((gradient == 0).all() for gradient in gradients)


def test_one_thread_and_two_give_the_same_bits() -> None:
    tensors = inputs(5, 40, 130, 32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(output_and_gradients(selective_scan, tensors))
            assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(one, two) for one, two in zip(*results, strict=True))


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(0, 9), st.integers(1, 40), st.sampled_from([1, 3, 127, 128, 129]), st.integers(1, 5))
def test_any_shape(rows: int, length: int, channels: int, states: int) -> None:
    tensors = inputs(rows, length, channels, states)
    found = output_and_gradients(lambda *a: selective_scan(*a, implementation="cpu"), tensors)
    assert_close(found, output_and_gradients(exact, tensors))


def test_strided_inputs_and_no_grad() -> None:
    tensors = inputs(2, 9, 6, 4)

    def strided(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        write, read = torch.cat([B, C], dim=-1).split([4, 4], dim=-1)
        x, delta = (part.transpose(1, 2).contiguous().transpose(1, 2) for part in (x, delta))
        rates, skip = A.T.contiguous().T, torch.stack([D, D], dim=-1)[:, 0]
        assert not any(part.is_contiguous() for part in (x, delta, rates, write, read, skip))
        y = selective_scan(x, delta, rates, write, read, skip)
        return y.transpose(0, 2).contiguous().transpose(0, 2)  # and so is the gradient that comes back

    expected = output_and_gradients(exact, tensors)
    assert_close(output_and_gradients(strided, tensors), expected)
    with torch.no_grad():
        assert_close([strided(*tensors).double()], expected[:1])


@pytest.mark.parametrize("implementation", ["cpu", "reference"])
def test_a_sequence_cut_anywhere_goes_on_as_if_it_were_whole(implementation, monkeypatch) -> None:
    monkeypatch.setattr(module, "chosen", lambda device: implementation)
    x, delta, A, B, C, D = inputs(2, 40, 5, 3)
    whole, last = reference(x, delta, A, B, C, D)
    state, parts = torch.zeros(2, 5, 3, dtype=x.dtype), []
    for start, stop in pairwise([0, 1, 17, 40]):
        cut = slice(start, stop)
        y, state = continued_scan(state, x[:, cut], delta[:, cut], A, B[:, cut], C[:, cut], D)
        parts.append(y)
    torch.testing.assert_close(torch.cat(parts, dim=1), whole, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(state, last)


def test_extreme_steps_stay_finite() -> None:
    x, delta, A, B, C, D = inputs(1, 50, 4, 8)
    y = selective_scan(x, delta * 1e4, A * 1e3, B, C, D)
    assert y.isfinite().all()  # everything before the present is forgotten at once
    torch.testing.assert_close(y, delta * 1e4 * x * (B * C).sum(-1, keepdim=True) + D * x, rtol=1e-4, atol=1e-2)


def test_agrees_with_mambapy() -> None:
    pscan = pytest.importorskip("mambapy.pscan", reason="mambapy is in the dev extra").pscan
    x, delta, A, B, C, D = inputs(2, 37, 6, 5, torch.float64)

    def theirs(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
        decay = torch.exp(delta[..., None] * A)
        fed = (delta * x)[..., None] * B[:, :, None]
        return (pscan(decay, fed) @ C[..., None])[..., 0] + D * x

    expected = output_and_gradients(theirs, [x, delta, A, B, C, D])
    found = output_and_gradients(selective_scan, [x, delta, A, B, C, D])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def test_shapes_that_do_not_fit_are_named() -> None:
    x, delta, A, B, C, D = inputs(2, 4, 3, 5)
    with pytest.raises(ValueError, match=r"B and C \(B, L, N\).*\(2, 4, 4\)"):
        selective_scan(x, delta, A, B[..., :4], C, D)
    with pytest.raises(ValueError, match=r"wants x and delta \(B, L, E\).* x is \(4, 3\)"):
        selective_scan(x[0], delta, A, B, C, D)
    with pytest.raises(ValueError, match=r"a state \(B, E, N\), \(2, 3, 5\); found \(1, 3, 5\)"):
        continued_scan(torch.zeros(1, 3, 5, dtype=x.dtype), x, delta, A, B, C, D)


def test_an_implementation_can_be_forced_by_the_environment(monkeypatch) -> None:
    chosen.cache_clear()
    try:
        monkeypatch.setenv(module.FORCED, "reference")
        assert chosen("cpu") == "reference"
        chosen.cache_clear()
        module.chosen.cache_clear()
        monkeypatch.setenv(module.FORCED, "cuda")
        assert module.chosen("cpu") == "cpu"  # what was trained on a GPU is evaluated here
        module.chosen.cache_clear()
        monkeypatch.setenv(module.FORCED, "cpu")
        assert module.chosen("mps") == "reference"
        module.chosen.cache_clear()
        monkeypatch.setenv(module.FORCED, "fastest")
        with pytest.raises(SettingsError, match=r"'fastest' \(MARSREC_SCAN .*\): there are reference, cpu, cuda"):
            chosen("cpu")
    finally:
        chosen.cache_clear()
    with pytest.raises(SettingsError, match=r"'cuda' .* does not run on tensors of the cpu"):
        selective_scan(*inputs(1, 2, 3, 4), implementation="cuda")


@pytest.fixture
def mamba_ssm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file that stands for mamba-ssm's interface, to be written."""
    interface = tmp_path / "mamba_ssm" / "ops" / "selective_scan_interface.py"
    interface.parent.mkdir(parents=True)
    for name in [name for name in sys.modules if name.split(".")[0] == "mamba_ssm"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv(module.FORCED, raising=False)
    chosen.cache_clear()
    yield interface
    chosen.cache_clear()
    for name in [name for name in sys.modules if name.split(".")[0] == "mamba_ssm"]:
        del sys.modules[name]


def test_a_mamba_ssm_that_does_not_load_is_not_chosen(mamba_ssm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mamba_ssm.write_text("raise ImportError('undefined symbol: _ZN3c104cuda9SetDeviceEi')")
    with pytest.warns(UserWarning, match=r"does not load \(undefined symbol: .*\): on the GPU .* in torch"):
        assert chosen("cuda") == "reference"
    chosen.cache_clear()
    monkeypatch.setenv(module.FORCED, "cuda")
    with pytest.raises(SettingsError, match=r"'cuda' .*: mamba-ssm is installed but does not load \(undefined symbol"):
        chosen("cuda")
    chosen.cache_clear()
    mamba_ssm.write_text("def selective_scan_fn(): ...")
    assert chosen("cuda") == "cuda"


@pytest.mark.skipif(find_spec("mamba_ssm") is not None, reason="mamba-ssm is installed")
def test_a_gpu_without_mamba_ssm_gets_a_warning() -> None:
    chosen.cache_clear()
    with pytest.warns(UserWarning, match=r"mamba-ssm is not installed \(pip install mamba-ssm\): on the GPU") as caught:
        assert chosen("cuda") == "reference"
    assert caught[0].filename == __file__  # and not a line of marsrec
    chosen.cache_clear()


def test_mamba_ssm_gets_channels_before_positions_and_never_an_empty_batch(mamba_ssm: Path, monkeypatch) -> None:
    mamba_ssm.write_text(
        "from marsrec.nn.kernels.selective_scan import reference\n"
        "def selective_scan_fn(u, delta, A, B, C, D):\n"
        "    assert u.numel() and all(part.is_contiguous() for part in (u, delta, B, C))\n"
        "    return reference(u.mT, delta.mT, A, B.mT, C.mT, D)[0].mT\n"
    )
    monkeypatch.setattr(module, "chosen", lambda device: "cuda")
    tensors = inputs(2, 9, 6, 4)
    torch.testing.assert_close(selective_scan(*tensors), reference(*tensors)[0])
    for rows, length in ((0, 5), (2, 0)):
        assert selective_scan(*inputs(rows, length, 8, 16)).shape == (rows, length, 8)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_single(half) -> None:
    x, delta, A, B, C, D = inputs(2, 30, 8, 4)
    x, B, C = x.to(half).requires_grad_(), B.to(half), C.to(half)
    y = selective_scan(x, delta, A, B, C, D)
    assert y.dtype == half
    expected = reference(x.float(), delta, A, B.float(), C.float(), D)[0]
    torch.testing.assert_close(y.float(), expected, rtol=1e-2, atol=1e-2)
    (gradient,) = torch.autograd.grad(y.float().sum(), x)
    assert gradient.dtype == half


def test_gradients_fade_to_zero_and_not_to_numbers_that_are_slow_to_compute_with() -> None:
    x, delta, B, C = (torch.ones(1, 300, width) for width in (4, 4, 1, 1))
    inputs = [part.requires_grad_() for part in (x, delta, B, C)]
    y = selective_scan(x, delta, -torch.ones(4, 1), B, C, torch.zeros(4), implementation="cpu")
    for gradient in torch.autograd.grad(y[:, -1].sum(), inputs[:3]):
        assert (gradient[:, -60:] != 0).all()
        assert not ((gradient != 0) & (gradient.abs() < torch.finfo(torch.float32).tiny)).any()


def test_a_gradient_that_is_not_a_number_is_not_hidden() -> None:
    x, delta, B, C = (torch.ones(1, 40, width) for width in (4, 4, 1, 1))
    A = -torch.ones(4, 1)
    for part in (x, A):
        part.requires_grad_()
    y = selective_scan(x, delta, A, B, C, torch.zeros(4), implementation="cpu")
    slope = torch.zeros_like(y)
    slope[:, -1] = torch.nan
    for gradient in torch.autograd.grad(y, [x, A], slope):
        assert gradient.isnan().all()
