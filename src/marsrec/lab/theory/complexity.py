"""Proposition 2 in numbers: what the operator costs against the length L, the width d and the number K of heads.

The proposition is about one readout per history, at its latest event. Training reads out at every position, which is
another matter: the dense form then weighs all pairs of events, and the streaming form sums them up. Both are measured
over L, beside causal self-attention of one layer.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from marsrec.nn.kernels.attention import causal_attention
from marsrec.nn.mars import MARS, Form

BASE = {"L": 512, "d": 64, "K": 8}
"""Where the others stay while one size is swept."""
SIZES = {"L": (128, 256, 512, 1024, 2048), "d": (32, 64, 128, 256), "K": (4, 8, 16, 32, 64)}
QUICK = {"L": (128, 256, 512), "d": (32, 64, 128), "K": (4, 8, 16)}
HISTORIES = 32  # read at once at their latest events: enough for the arithmetic to outweigh the calls
ATTENTION_HEADS = 2
FORMS: tuple[Form, ...] = ("dense", "streaming")
READ = "MARS, at the latest event"
TITLES = {
    READ: "O(L d K)",
    "self-attention, one layer": "O(L² d)",
    "MARS, at every event, dense": "O(L² d K)",
    "MARS, at every event, streaming": "O(L d K)",
}


@dataclass(frozen=True)
class Sweep:
    """Median seconds per history of something, over one size."""

    name: str
    size: str
    """"L", "d" or "K"."""
    values: list[int]
    seconds: list[float]
    spread: list[float]
    """Interquartile range of the repetitions over their median: how disturbed the machine was."""

    @property
    def slope(self) -> float:
        """Exponent p of seconds ≈ c · size^p, by least squares on both logs."""
        return float(np.polyfit(np.log(self.values), np.log(self.seconds), 1)[0])

    @property
    def last_slope(self) -> float:
        """The exponent between the two largest sizes, where fixed costs weigh least."""
        return float(np.diff(np.log(self.seconds[-2:]))[0] / np.diff(np.log(self.values[-2:]))[0])


def measure(quick: bool = False) -> dict[str, Any]:
    """Sweep each size alone. All contestants take turns, so that a busy machine is busy for all of them."""
    sizes, repetitions = (QUICK, 7) if quick else (SIZES, 15)
    calls: dict[tuple[str, str, int], Callable[[], object]] = {}
    for size, values in sizes.items():
        for value in values:
            chosen = BASE | {size: value}
            L, d, K = (chosen[name] for name in ("L", "d", "K"))
            calls[READ, size, value] = _mars(L, d, K)
            if size == "L":
                calls["self-attention, one layer", size, value] = _attention(L, d)
                for form in FORMS:
                    calls[f"MARS, at every event, {form}", size, value] = _mars(L, d, K, every=True, form=form)
    taken = _in_turns(calls, repetitions)
    sweeps = []
    for name in TITLES:
        for size, values in sizes.items():
            per = HISTORIES if name == READ else 1
            runs = [np.array(taken[name, size, value]) / per for value in values if (name, size, value) in taken]
            if runs:
                middle = [float(np.median(run)) for run in runs]
                apart = [float(np.subtract(*np.percentile(run, [75, 25]))) for run in runs]
                spread = [a / m for a, m in zip(apart, middle, strict=True)]
                sweeps.append(asdict(Sweep(name, size, list(values), middle, spread)))
    return {
        "base": BASE,
        "histories": HISTORIES,
        "repetitions": repetitions,
        "threads": torch.get_num_threads(),
        "sweeps": sweeps,
    }


def _in_turns(calls: Mapping[Any, Callable[[], object]], repetitions: int) -> dict[Any, list[float]]:
    """Seconds of each repetition of each call, after one to warm up."""
    taken: dict[Any, list[float]] = {key: [] for key in calls}
    with torch.no_grad():
        for repetition in range(repetitions + 1):
            for key, call in calls.items():
                began = time.perf_counter()
                call()
                if repetition:
                    taken[key].append(time.perf_counter() - began)
    return taken


def _mars(L: int, d: int, K: int, *, every: bool = False, form: Form = "dense") -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    histories = HISTORIES if not every else 1  # all pairs of one history are work enough
    operator = MARS(d, K, form=form)
    states = torch.randn(histories, L, d, generator=generator)
    times = torch.randint(1, 100_000, (histories, L), generator=generator).cumsum(1)
    return lambda: operator(states, times, every=every)


def _attention(L: int, d: int) -> Callable[[], object]:
    generator = torch.Generator().manual_seed(0)
    query, key, value = torch.randn(3, 1, ATTENTION_HEADS, L, d // ATTENTION_HEADS, generator=generator)
    return lambda: causal_attention(query, key, value)
