"""Mamba's selective scan: a torch reference, a numba kernel for the CPU and mamba-ssm's for CUDA, one signature.

Each of E channels has N states that decay and are fed at rates that depend on the input::

    h_t = exp(Δ_t A) · h_{t-1} + Δ_t x_t B_t        h_0 = 0
    y_t = C_t · h_t + D x_t

Shapes: B rows, L positions, E channels, N states per channel.
"""

import os
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Literal, get_args

import torch
from torch import Tensor

from marsrec.errors import SettingsError, warn
from marsrec.nn.kernels.numeric import widened
from marsrec.nn.kernels.selective_scan_cpu import cpu_scan, cpu_scan_from

Implementation = Literal["reference", "cpu", "cuda"]

FORCED = "MARSREC_SCAN"
"""Environment variable that forces an implementation."""


@cache
def chosen(device: str) -> Implementation:
    """The implementation that runs on a kind of device, decided at the first call."""
    if forced := forced_on(device):
        return _possible(forced, device)
    if device == "cuda":
        if not (reason := missing()):
            return "cuda"
        warn(f"{reason}: on the GPU the selective scan runs in torch, a position at a time.")
    return "cpu" if device == "cpu" else "reference"


def forced_on(device: str) -> str | None:
    """What the environment forces on a kind of device: one device's kernel says nothing about another's tensors."""
    forced = os.environ.get(FORCED)
    return None if forced in ("cpu", "cuda") and forced != device else forced


def missing() -> str | None:
    """Why mamba-ssm cannot be used, if so."""
    if find_spec("mamba_ssm") is None:
        return "mamba-ssm is not installed (pip install mamba-ssm)"
    try:
        import_module("mamba_ssm.ops.selective_scan_interface")
    except Exception as error:  # built for another torch or CUDA, it fails in many ways
        return f"mamba-ssm is installed but does not load ({error})"
    return None


def _possible(name: str, device: str) -> Implementation:
    """An implementation by its name, if it can run on a kind of device."""
    if name not in get_args(Implementation):
        reason = f"there are {', '.join(get_args(Implementation))}"
    elif name in ("cpu", "cuda") and name != device:
        reason = f"it does not run on tensors of the {device}; take {device if device == 'cpu' else 'reference'!r}"
    elif name == "cuda" and (absent := missing()):
        reason = absent
    else:
        return name  # type: ignore[return-value]
    raise SettingsError(f"selective scan {name!r} ({FORCED} or implementation=...): {reason}.")


def selective_scan(
    x: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    *,
    implementation: Implementation | None = None,
) -> Tensor:
    """Run the recurrence over a batch of sequences, differentiably in all six inputs.

    Parameters
    ----------
    x : Tensor (B, L, E)
        Input.
    delta : Tensor (B, L, E)
        Step sizes Δ, positive.
    A : Tensor (E, N)
        Decay rates, negative.
    B, C : Tensor (B, L, N)
        What is written to the states and what is read from them.
    D : Tensor (E,)
        Share of the input that goes straight to the output.
    implementation : {"reference", "cpu", "cuda"}, optional
        Which one to use. If not given, what the environment variable MARSREC_SCAN says if it runs on this device, else
        the fastest there is for it. float64 always takes the reference.

    Returns
    -------
    Tensor (B, L, E)

    Examples
    --------
    One channel with one state that keeps half of itself at each step:

    >>> ones = torch.ones(1, 4, 1)
    >>> halving = torch.full((1, 1), 0.5).log()
    >>> selective_scan(ones, ones, halving, ones, ones, torch.zeros(1)).flatten()
    tensor([1.0000, 1.5000, 1.7500, 1.8750])
    """
    _check(x, delta, A, B, C, D)
    taken = chosen(x.device.type) if implementation is None else _possible(implementation, x.device.type)
    parts = widened(x, delta, A, B, C, D)  # half precision loses what decays slowly
    single = parts[0].dtype == torch.float32
    if taken == "cpu" and single:
        y = cpu_scan(*parts)
    elif taken == "cuda" and single and x.numel():  # it does not take an empty batch
        from mamba_ssm.ops.selective_scan_interface import selective_scan_fn  # type: ignore[import-not-found]

        u, step, write, read = (parts[i].transpose(1, 2).contiguous() for i in (0, 1, 3, 4))
        y = selective_scan_fn(u, step, parts[2], write, read, parts[5]).transpose(1, 2)
    else:
        y = reference(*parts)[0]
    return y.to(x.dtype)


@torch.no_grad()
def continued_scan(
    state: Tensor, x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor
) -> tuple[Tensor, Tensor]:
    """Go on from a state (B, E, N) without gradients: the output, and the state (B, E, N) after the last position.

    Cutting a sequence anywhere and going on gives what one scan over all of it gives. The inputs are those of
    `selective_scan`.
    """
    _check(x, delta, A, B, C, D)
    if state.shape != (len(x), *A.shape):
        raise ValueError(f"continued_scan wants a state (B, E, N), {(len(x), *A.shape)}; found {tuple(state.shape)}")
    dtype = x.dtype
    x, delta, A, B, C, D, state = widened(x, delta, A, B, C, D, state)
    if chosen(x.device.type) == "cpu" and x.dtype == torch.float32:
        y, final = cpu_scan_from(state, x, delta, A, B, C, D)
    else:
        y, final = reference(x, delta, A, B, C, D, state)
    return y.to(dtype), final


def reference(
    x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor, state: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The recurrence as it is written above, a position at a time: output and last state (B, E, N)."""
    h = x.new_zeros(x.shape[0], *A.shape) if state is None else state
    outputs = []
    parts = (part.unbind(1) for part in (x, delta, B, C))
    for x_t, delta_t, B_t, C_t in zip(*parts, strict=True):
        h = torch.exp(delta_t[..., None] * A) * h + (delta_t * x_t)[..., None] * B_t[:, None]
        outputs.append((h @ C_t[..., None])[..., 0] + D * x_t)
    return (torch.stack(outputs, dim=1) if outputs else torch.zeros_like(x)), h


def _check(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> None:
    found = [tuple(part.shape) for part in (delta, A, B, C, D)]
    expected: list[tuple[int, ...]] = []
    if x.ndim == 3 and A.ndim == 2:
        (rows, length, channels), states = x.shape, A.shape[1]
        expected = [(rows, length, channels), (channels, states), *[(rows, length, states)] * 2, (channels,)]
    if found != expected:
        raise ValueError(
            "selective_scan wants x and delta (B, L, E), A (E, N), B and C (B, L, N) and D (E,); "
            f"x is {tuple(x.shape)}, the others {found}"
        )
