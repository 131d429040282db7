"""Proposition 2 in numbers: what the operator costs against the length L, the width d and the number K of heads.

The proposition is about one readout per history, at its latest event: O(L d K) time, and O(L K + d K) memory beside the
states. Training reads out at every event, forward and backward, which is another matter: the dense form then weighs all
pairs of events, and the streaming form sums them up. Both are measured over L, beside causal self-attention.

Sizes are such that the arithmetic outweighs the calls: at the upper half of them a call takes milliseconds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from benchmarks.measure import multiply_accumulates, peak_bytes
from torch import Tensor

from marsrec.nn.kernels.attention import causal_attention
from marsrec.nn.mars import MARS, Form
from marsrec.nn.mixture import NODES

Call = Callable[[], object]

BASE = {"L": 2048, "d": 256, "K": 32}
"""Where the others stay while one size is swept."""
SIZES = {"L": (512, 1024, 2048, 4096, 8192), "d": (64, 128, 256, 512, 1024), "K": (8, 16, 32, 64, 128)}
HISTORIES = 8  # read at once at their latest events
TRAINED = {"d": 64, "K": 8}
"""Width and heads where every event is read out: the paper's on dense data."""
LENGTHS = (400, 800, 1600, 3200, 6400)
TOGETHER = 2  # histories that are trained on at once: the streaming form takes a thread for each
ATTENTION_HEADS = 2

READ = "MARS, at the latest event"
ATTENTION = "self-attention, one layer"
DENSE = "MARS, at every event, dense"
STREAMING = "MARS, at every event, streaming"
FORMS: dict[str, Form] = {DENSE: "dense", STREAMING: "streaming"}
ORDERS = {READ: ("O(L d K)", 1), ATTENTION: ("O(L² d)", 2), DENSE: ("O(L² d K)", 2), STREAMING: ("O(L d K)", 1)}
"""Operations of each, and their exponent of L."""


@dataclass(frozen=True)
class Sweep:
    """Cost per history of something, over one size."""

    name: str
    size: str
    """"L", "d" or "K"."""
    values: list[int]
    seconds: list[float]
    """Medians of the repetitions."""
    spread: list[float]
    """Interquartile range of the repetitions over their median: how disturbed the machine was."""
    quartiles: list[list[float]] | None = None
    """Seconds that a quarter and three quarters of the repetitions stayed below."""
    accumulates: list[float] | None = None
    """Multiply-accumulates."""
    peak: list[float] | None = None
    """The most bytes that torch's allocator held beside the inputs."""


def measure(quick: bool = False) -> dict[str, Any]:
    """Sweep each size alone. All contestants take turns, so that a busy machine is busy for all of them."""
    repetitions, trainings = (5, 3) if quick else (25, 9)
    sizes, lengths = ({name: values[:3] for name, values in SIZES.items()}, LENGTHS[:3]) if quick else (SIZES, LENGTHS)
    swept: dict[tuple[str, str], tuple[int, ...]] = {(READ, size): values for size, values in sizes.items()}
    swept |= {(name, "L"): lengths for name in (ATTENTION, DENSE, STREAMING)}
    torch.manual_seed(0)
    calls: dict[tuple[str, str, int], Call] = {
        (name, size, value): call(name, *_at(name, size, value))
        for (name, size), values in swept.items()
        for value in values
    }
    taken = _in_turns({key: run for key, run in calls.items() if key[0] == READ}, repetitions)
    taken |= _in_turns({key: run for key, run in calls.items() if key[0] != READ}, trainings)
    sweeps = []
    for (name, size), values in swept.items():
        per = HISTORIES if name == READ else TOGETHER
        runs = [np.array(taken[name, size, value]) / per for value in values]
        quartiles = [np.percentile(run, [25, 75]).tolist() for run in runs]
        middle = [float(np.median(run)) for run in runs]
        sweep = Sweep(
            name,
            size,
            list(values),
            middle,
            spread=[(high - low) / m for (low, high), m in zip(quartiles, middle, strict=True)],
            quartiles=quartiles,
            accumulates=[accumulates(name, *_at(name, size, value)) / per for value in values],
            peak=[peak_bytes(calls[name, size, value]) / per for value in values],
        )
        sweeps.append(asdict(sweep))
    return {
        "base": BASE,
        "histories": HISTORIES,
        "repetitions": repetitions,
        "trained": TRAINED | {"histories": TOGETHER, "repetitions": trainings},
        "threads": torch.get_num_threads(),
        "sweeps": sweeps,
    }


def call(name: str, L: int, d: int, K: int, *, device: str = "cpu") -> Call:
    """One readout of `HISTORIES` random histories, or a forward and backward pass over `TOGETHER` of them."""
    histories = HISTORIES if name == READ else TOGETHER
    with torch.device(device):
        if name == ATTENTION:
            parts = torch.randn(3, histories, ATTENTION_HEADS, L, d // ATTENTION_HEADS, requires_grad=True)
            return lambda: _backward(causal_attention(*parts), [parts])
        operator = MARS(d, K, form=FORMS.get(name, "dense"))
        states = torch.randn(histories, L, d, requires_grad=name != READ)
        times = torch.randint(1, 100_000, (histories, L)).cumsum(1)
    if name == READ:
        return torch.no_grad()(lambda: operator(states, times))
    learned = [states, *operator.parameters()]
    return lambda: _backward(operator(states, times, every=True), learned)


def accumulates(name: str, L: int, d: int, K: int) -> float:
    """Multiply-accumulates of `call`, as torch counts them in matrix products.

    On the "meta" device, where nothing is computed, the operator takes its reference implementations, which hide none.
    The streaming form cannot go there, since what it does depends on the rates. What its compiled parts do is added
    from shapes: three scans, one forward and two backward.
    """
    hidden = 3 * TOGETHER * L * (K + 1) * NODES * (d + 1) if name == STREAMING else 0
    run = call(name, L, d, K, device="cpu" if name == STREAMING else "meta")
    return multiply_accumulates(run) + hidden


def _backward(output: Tensor, learned: Sequence[Tensor]) -> None:
    for leaf in learned:
        leaf.grad = None  # each time as the first
    output.sum().backward()  # type: ignore[no-untyped-call]


def _at(name: str, size: str, value: int) -> tuple[int, int, int]:
    """L, d and K."""
    chosen = (BASE if name == READ else TRAINED) | {size: value}
    return chosen["L"], chosen["d"], chosen["K"]


def _in_turns(calls: Mapping[Any, Call], repetitions: int) -> dict[Any, list[float]]:
    """Seconds of each repetition of each call, after one to warm up."""
    taken: dict[Any, list[float]] = {key: [] for key in calls}
    for repetition in range(repetitions + 1):
        for key, run in calls.items():
            began = time.perf_counter()
            run()
            if repetition:
                taken[key].append(time.perf_counter() - began)
    return taken
