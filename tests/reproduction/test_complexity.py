"""What the operator costs: counted as the equations say, and held as the weights need."""

import json

import pytest
import torch
from benchmarks.measure import multiply_accumulates, peak_bytes
from reproduction.theory import complexity
from reproduction.theory.complexity import ATTENTION, DENSE, READ, STREAMING, accumulates, call

from marsrec.nn.kernels.decayed_average import CHUNK
from marsrec.nn.mars import HIDDEN, TIME_FEATURES
from marsrec.nn.mixture import NODES
from marsrec.nn.streaming import streaming_average


def test_accumulates_are_those_of_the_equations() -> None:
    L, d, K = 96, 16, 4
    context = HIDDEN * (TIME_FEATURES + 2 * d)
    time_encoder = TIME_FEATURES + TIME_FEATURES**2
    once = d * HIDDEN + HIDDEN * K + time_encoder + context  # modulation, and what the heads share in the gate
    # The sum of the heads, each times its weight, is no matrix product.
    assert accumulates(READ, L, d, K) == complexity.HISTORIES * (L * d * K + K * d * HIDDEN + K * HIDDEN + once)
    assert accumulates(ATTENTION, L, d, K) == complexity.TOGETHER * 3 * 2 * L * L * d  # backward is twice forward
    pairs = CHUNK * sum(range(CHUNK, L + 1, CHUNK))  # events up to the last position of a chunk
    more = [accumulates(DENSE, L, d, heads) - 3 * complexity.TOGETHER * pairs * d * heads for heads in (K, 2 * K)]
    per_head = d * HIDDEN + HIDDEN + HIDDEN  # gate, its scores, and modulation
    assert more[1] - more[0] == 3 * complexity.TOGETHER * L * K * per_head


def test_accumulates_of_compiled_scans_are_those_of_the_reference() -> None:
    L, d, K = 24, 16, 4

    def scan(kind: torch.dtype) -> None:  # float64 takes the reference
        torch.manual_seed(0)
        states = torch.randn(1, L, d, dtype=kind, requires_grad=True)
        rates = torch.rand(1, L, K, dtype=kind, requires_grad=True)
        times = torch.arange(L)[None] * 3600
        streaming_average(states, times, times, rates).sum().backward()  # type: ignore[no-untyped-call]

    mixing = multiply_accumulates(lambda: scan(torch.float64)) - multiply_accumulates(lambda: scan(torch.float32))
    recurrence = 3 * L * NODES * (d + 1)  # forward, and once for each gradient; no matrix product in the reference
    hidden = accumulates(STREAMING, L, d, K) - multiply_accumulates(call(STREAMING, L, d, K))
    assert hidden == pytest.approx(complexity.TOGETHER * (mixing + recurrence), rel=0.03)


def test_memory_of_a_readout_is_that_of_its_weights() -> None:
    def floats(L: int, d: int, K: int) -> float:
        return peak_bytes(call(READ, L, d, K)) / 4 / complexity.HISTORIES

    small = floats(512, 32, 16)
    assert 1 < small / (512 * 16 + 32 * 16) < 3
    assert floats(1024, 32, 16) == pytest.approx(2 * small, rel=0.1)
    assert floats(512, 32, 32) == pytest.approx(2 * small, rel=0.1)
    assert floats(512, 128, 16) == pytest.approx(small, rel=0.1)  # no copy of the states


def test_measured_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(complexity, "BASE", {"L": 64, "d": 16, "K": 4})
    monkeypatch.setattr(complexity, "SIZES", {"L": (32, 64), "d": (8, 16), "K": (2, 4)})
    monkeypatch.setattr(complexity, "TRAINED", {"d": 8, "K": 2})
    monkeypatch.setattr(complexity, "LENGTHS", (32, 64))
    costs = json.loads(json.dumps(complexity.measure(quick=True)))
    kinds = [(sweep["name"], sweep["size"], sweep["values"]) for sweep in costs["sweeps"]]
    assert kinds[:3] == [(READ, "L", [32, 64]), (READ, "d", [8, 16]), (READ, "K", [2, 4])]
    assert kinds[3:] == [(name, "L", [32, 64]) for name in (ATTENTION, DENSE, STREAMING)]
    for sweep in costs["sweeps"]:
        assert all(
            low <= middle <= high for middle, (low, high) in zip(sweep["seconds"], sweep["quartiles"], strict=True)
        )
    assert costs["sweeps"][0]["accumulates"] == [accumulates(READ, L, 16, 4) / complexity.HISTORIES for L in (32, 64)]
    square, linear = costs["sweeps"][3]["accumulates"], costs["sweeps"][5]["accumulates"]
    assert (square[1] / square[0], linear[1] / linear[0]) == (4, 2)
