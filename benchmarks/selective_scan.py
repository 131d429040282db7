"""The selective scan, forward and backward: the CPU kernel against two ways in torch, and against its arithmetic."""

import time

import numpy as np
import torch
from numba import prange
from torch import Tensor

from benchmarks.measure import medians, peak_bytes, show
from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.nn.kernels.numeric import exp
from marsrec.nn.kernels.selective_scan import reference, selective_scan

ROWS, LENGTH, CHANNELS, STATES = 16, 200, 128, 32


def mambapy(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    from mambapy.pscan import pscan

    decay = torch.exp(delta[..., None] * A)  # (B, L, E, N)
    fed = (delta * x)[..., None] * B[:, :, None]
    return (pscan(decay, fed) @ C[..., None])[..., 0] + D * x


def unbound(x: Tensor, delta: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor) -> Tensor:
    """Decays and inputs of all positions first, then a loop over them: how it is often written."""
    decay = torch.exp(delta[..., None] * A)  # (B, L, E, N)
    fed = (delta * x)[..., None] * B[:, :, None]
    h, states = torch.zeros_like(decay[:, 0]), []
    for decay_t, fed_t in zip(decay.unbind(1), fed.unbind(1), strict=True):
        h = decay_t * h + fed_t
        states.append(h)
    return (torch.stack(states, dim=1) @ C[..., None])[..., 0] + D * x


def arithmetic(repetitions: int = 20) -> float:
    """Seconds that all threads together take for one exponential and one multiply-add in the L1 cache."""
    size, rounds = 2048, 2000
    threads = torch.get_num_threads()
    arrays = [np.random.default_rng(0).uniform(-1, 0, (threads, size)).astype(np.float32) for _ in range(3)]
    best = float("inf")
    with like_torch():
        for _ in range(repetitions):
            start = time.perf_counter()
            _exp_multiply_add(*arrays, rounds)
            best = min(best, time.perf_counter() - start)
    return best / (threads * size * rounds)


@kernel()
def _exp_multiply_add(rate, fed, state, rounds):  # type: ignore[no-untyped-def]
    for row in prange(len(state)):
        for _ in range(rounds):
            for i in range(state.shape[1]):
                state[row, i] = exp(rate[row, i]) * state[row, i] + fed[row, i]


def main() -> None:
    torch.manual_seed(0)
    x, delta = torch.randn(ROWS, LENGTH, CHANNELS), (torch.randn(ROWS, LENGTH, CHANNELS) - 3).exp()
    A = -torch.arange(1.0, STATES + 1).repeat(CHANNELS, 1)
    B, C = torch.randn(ROWS, LENGTH, STATES), torch.randn(ROWS, LENGTH, STATES)
    inputs = [part.requires_grad_() for part in (x, delta, A, B, C, torch.ones(CHANNELS))]
    direction = torch.randn(ROWS, LENGTH, CHANNELS)
    ways = {
        "numba kernel": selective_scan,
        "torch, all decays, then a loop over unbind": unbound,
        "torch, the reference": lambda *parts: reference(*parts)[0],
        "mambapy, parallel scan": mambapy,
    }
    runs = {name: (lambda way=way: torch.autograd.grad(way(*inputs), inputs, direction)) for name, way in ways.items()}
    seconds = medians(runs, 7)
    ours = seconds["numba kernel"]
    show(
        f"Selective scan, forward + backward: B={ROWS}, L={LENGTH}, {CHANNELS} channels × {STATES} states",
        ["", "ms", "kernel is faster", "peak MB"],
        [
            [name, f"{1e3 * spent:.1f}", f"{spent / ours:.1f}×", f"{peak_bytes(runs[name]) / 1e6:.0f}"]
            for name, spent in seconds.items()
        ],
        "wanted: at least 10× faster than the loop over unbind, and 25× faster than mambapy",
    )
    updates = ROWS * LENGTH * CHANNELS * STATES
    unit = arithmetic()
    show(
        "The kernel beside an exponential and a multiply-add per state and direction, in the L1 cache",
        ["", "ns per state update", "bound", "share"],
        [
            _beside("forward", medians({"f": lambda: _forward(inputs)}, 15)["f"] / updates, unit),
            _beside("forward + backward", ours / updates, 2 * unit),
        ],
    )


def _forward(inputs: list[Tensor]) -> None:
    with torch.no_grad():
        selective_scan(*inputs)


def _beside(name: str, spent: float, bound: float) -> list[str]:
    return [name, f"{1e9 * spent:.2f}", f"{1e9 * bound:.2f}", f"{100 * bound / spent:.0f} %"]


if __name__ == "__main__":
    main()
