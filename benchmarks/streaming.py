"""The streaming form: its error by the number of nodes, and its time and memory beside the dense form.

`python -m benchmarks.streaming MODEL ...` compares both forms on saved models instead: user vectors and metrics.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import peak_bytes, show
from marsrec import Recommender
from marsrec.data.batches import Batch, Batches, contexts
from marsrec.evaluation.evaluate import POSITIONS, evaluate
from marsrec.nn.kernels.decayed_average import decayed_average
from marsrec.nn.mixture import LONGEST, NODES, STEEPEST, coefficients, nodes
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.mars import Mars
from marsrec.nn.streaming import streaming_average

COUNTS = (32, 36, 40, NODES, 48)
CROWD = 1000
CAPTION = f"crowd: error of the share that {CROWD:,} simultaneous events have in an average beside one newer event"
SIZES = ((20, 200), (10, 400), (3, 1600))  # rows × positions
WIDTH, HEADS = 64, 8
REPETITIONS = 7


def errors(count: int) -> list[float]:
    """Largest errors, in the order of the table's columns."""
    rates = torch.tensor([1e-8, 1e-4, 1e-3, 0.01, *np.geomspace(0.03, 8, 20), *np.geomspace(8.5, STEEPEST, 32)])
    worst = torch.zeros(4, len(rates), dtype=torch.float64)  # last event, request, request × (1 + z)^…, crowd
    for newest in np.append(0.0, np.geomspace(0.001, LONGEST, 200)):
        older = torch.tensor(np.append(0.0, np.geomspace(1e-5, max(LONGEST - newest, 2e-3), 400)))
        mix = coefficients(rates, torch.tensor(newest), count=count)
        found = mix @ torch.exp(-torch.tensor(nodes(count))[:, None] * older)  # (rates, ages)
        z = older / (1 + newest)
        weight, found = (1 + z) ** -rates[:, None], found / found[:, :1]
        error = (found - weight).abs()
        decayed = error * (1 + z) ** rates[:, None].clamp(max=1)
        crowd = (CROWD * found / (1 + CROWD * found) - CROWD * weight / (1 + CROWD * weight)).abs()
        worst[1:] = torch.maximum(worst[1:], torch.stack([part.amax(1) for part in (error, decayed, crowd)]))
        if newest == 0:
            worst[0] = error.amax(1)
    small = rates <= 8.001
    last, request, decayed, crowd = worst
    return [part.max().item() for part in (last[small], last, request[small], request, decayed, crowd[small], crowd)]


def best(contestants: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Shortest seconds of each; they take turns."""
    seconds = dict.fromkeys(contestants, float("inf"))
    for _ in range(REPETITIONS + 1):
        for name, run in contestants.items():
            began = perf_counter()
            run()
            seconds[name] = min(seconds[name], perf_counter() - began)
    return seconds


def timed(batch: int, length: int) -> list[list[str]]:
    """Averages and gradients in both forms: milliseconds and peak memory."""
    torch.manual_seed(0)
    states = torch.randn(batch, length, WIDTH, requires_grad=True)
    times = torch.exp(torch.rand(batch, length) * 14).long().cumsum(1)  # gaps from a second to two weeks
    rates = (0.1 + 4 * torch.rand(batch, length, HEADS)).requires_grad_()
    steep = rates.detach().clone()
    steep[..., -2:] *= 200  # as trained on dense data: two of the heads see seconds
    steep.requires_grad_()
    grad = torch.randn(batch, length, HEADS, WIDTH)

    def step(averages: Callable[[], Tensor], by: Tensor = rates) -> Callable[[], object]:
        return lambda: torch.autograd.grad(averages(), (states, by), grad)

    contestants = {
        "dense, torch": step(lambda: decayed_average(states, times, times, rates, implementation="reference")),
        "dense, kernel": step(lambda: decayed_average(states, times, times, rates)),
        f"streaming, {NODES} nodes": step(lambda: streaming_average(states, times, times, rates)),
        "streaming, 2 heads steep": step(lambda: streaming_average(states, times, times, steep), steep),
    }
    return [
        [f"{batch} × {length}", name, f"{seconds * 1e3:.0f}", f"{peak_bytes(contestants[name]) / 1e6:.0f}"]
        for name, seconds in best(contestants).items()
    ]


def read(network: SequenceModel, batch: Batch) -> tuple[Tensor, Tensor]:
    """User vectors and exponents at the latest events."""
    assert isinstance(network.readout, Mars)
    embedded = network.items(batch.items)
    reading = network.readout.read(network.encoder(embedded, batch), embedded, batch)
    return reading.users[:, 0], reading.rates[:, 0]


def on_trained(folder: Path) -> list[str]:
    """The largest difference of test users' vectors, the metrics of both forms, and those of whole histories."""
    recommender = Recommender.load(folder)
    network, split, length = recommender.network, recommender.split(), recommender.settings.length
    readout = network.readout
    assert isinstance(readout, Mars)
    vectors, found = {}, {}
    with torch.no_grad():
        for form in ("dense", "streaming"):
            readout.operator.form = form
            rows = contexts(split.histories, split.test, length)
            batches = Batches(split.histories, rows, POSITIONS, count="positions")
            readings = [read(network, batches[i]) for i in range(len(batches))]
            vectors[form], rates = (torch.cat(parts) for parts in zip(*readings, strict=True))
            found[form] = evaluate(network, split, length, "test").metrics
            if form == "streaming" and network.encoder.recurrent:  # no positions: any length can be read
                found["whole"] = evaluate(network, split, int(split.histories.lengths.max()), "test").metrics
    apart = (vectors["streaming"] - vectors["dense"]).norm(dim=1) / vectors["dense"].norm(dim=1)
    return [
        str(folder),
        f"{rates.min():.2f} to {rates.max():.2f}",
        f"{apart.max():.1e}",
        f"{apart.median():.1e}",
        *(
            " / ".join(f"{100 * found[form][name]:.3f}" for name in ("HR@10", "NDCG@10")) if form in found else ""
            for form in ("dense", "streaming", "whole")
        ),
    ]


def main(folders: Sequence[str] = ()) -> None:
    if folders:
        show(
            f"Both forms on trained weights, {NODES} nodes",
            [
                "model",
                "ρ",
                "largest difference of a vector",
                "median",
                "dense HR / NDCG@10",
                "streaming",
                "whole histories",
            ],
            [on_trained(Path(folder)) for folder in folders],
            "differences relative to the vector's length; whole histories are read in the streaming form, not cut",
        )
        return
    columns = [
        "nodes",
        "last event, ρ ≤ 8",
        "last event, all ρ",
        "request, ρ ≤ 8",
        "request, all ρ",
        "× (1 + z)^min(ρ, 1)",
        "crowd, ρ ≤ 8",
        "crowd, all ρ",
    ]
    rows = [[str(count), *(f"{error:.1e}" for error in errors(count))] for count in COUNTS]
    show(
        f"Largest error of a weight, relative to the newest's; ρ up to {STEEPEST:,.0f}, ages up to 30 years",
        columns,
        rows,
        CAPTION,
    )

    rows = [row for size in SIZES for row in timed(*size)]
    show(
        f"Averages and gradients, {WIDTH} dimensions, {HEADS} heads, float32, {torch.get_num_threads()} threads",
        ["rows × positions", "form", "ms", "peak MB"],
        rows,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
