"""A training step and an epoch: against prefix training, against the backbone alone, and against their bounds."""

import time
from collections import defaultdict
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.measure import medians, multiply_accumulates, peak_bytes, show, split_like
from marsrec.data.batches import Batch, Batches, prefixes
from marsrec.data.splits import Split
from marsrec.models import model_settings
from marsrec.nn.kernels.linear_cross_entropy import linear_cross_entropy
from marsrec.nn.model import SequenceModel
from marsrec.nn.settings import ModelSettings
from marsrec.training.module import training_batches
from marsrec.training.settings import TrainingSettings

DATA = ("beauty", "ml-1m")
STEPS = 12
MODELS = ("mars-t", "mars-m")
PARTS = {
    "_LinearCrossEntropy": "loss over all items",
    "_Scan": "selective scan",
    "aten::conv": "causal convolution",
    "_CausalAttention": "attention",
    "_DecayedAverage": "MARS averages",
    "_Dropout": "dropout",
    "Optimizer": "optimizer",
    "aten::native_layer_norm": "layer norms",
    "aten::index_select": "states at targets",
    "aten::index_add_": "states at targets",
    "aten::embedding": "item embedding",
    "aten::mm": "other matrix products",
    "aten::addmm": "other matrix products",
    "aten::bmm": "other matrix products",
}
"""What an event of the profiler belongs to, by how its name, or that of one around it, begins."""


class Stepper:
    """A model in training, one step at a time."""

    def __init__(self, settings: ModelSettings, n_items: int) -> None:
        torch.manual_seed(0)
        self.objective = settings.objective
        self.model: SequenceModel = settings.build(n_items).train()
        self.optimizer = torch.optim.Adam(self.model.parameters(), fused=True)

    def step(self, batch: Batch) -> None:
        self._descend(torch.stack(list(self.objective.losses(self.model, batch).values())).sum())

    def prefix_step(self, batch: Batch) -> None:
        output = self.model(batch)
        users, items, _ = self.model.scorer(output.users, self.model.items.weight)
        loss = linear_cross_entropy(users, items[1:], batch.targets[batch.targets > 0] - 1)
        self._descend(torch.stack([loss, *output.losses.values()]).sum())

    def _descend(self, loss: Tensor) -> None:
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()


def targets(batch: Batch) -> int:
    return int((batch.targets > 0).sum())


def one_pass_against_prefixes(split: Split, name: str, settings: ModelSettings) -> list[str]:
    """Seconds per target when the same pairs are trained in windows and as prefixes."""
    stepper = Stepper(settings, split.histories.n_items)
    windows = training_batches(split, settings.length, True, TrainingSettings(), 0)
    rows = prefixes(split, settings.length)
    # Long prefixes are many positions each: 256 targets are enough for a time per target.
    budget = 2048 if settings.length <= 50 else 256
    singles = Batches(split.histories, rows, budget, generator=np.random.default_rng(0))
    seconds: dict[str, list[float]] = {"windows": [], "prefixes": []}
    for index in range(min(STEPS, len(windows)) + 1):
        for kind, batch in (("windows", windows[index]), ("prefixes", singles[index])):
            start = time.perf_counter()
            (stepper.step if kind == "windows" else stepper.prefix_step)(batch)
            if index:
                seconds[kind].append((time.perf_counter() - start) / targets(batch))
    one, single = median(seconds["windows"]), median(seconds["prefixes"])
    return [name, f"{1 / one:,.0f}", f"{1 / single:,.0f}", f"{single / one:.1f}×"]


def mars_against_backbone(split: Split, name: str, length: int) -> list[str]:
    """A step of mars-t beside a step of the same encoder with the last state read out."""
    settings = {kind: settings_for(kind, length) for kind in ("sasrec", "mars-t")}
    steppers = {kind: Stepper(chosen, split.histories.n_items) for kind, chosen in settings.items()}
    batches = training_batches(split, length, True, TrainingSettings(), 0)
    ratios, times = [], []
    for index in range(min(STEPS, len(batches)) + 1):
        batch = batches[index]
        spent = medians({kind: (lambda s=stepper, b=batch: s.step(b)) for kind, stepper in steppers.items()}, 1)
        if index:
            ratios.append(spent["mars-t"] / spent["sasrec"])
            times.append((spent["sasrec"], spent["mars-t"]))
    backbone, mars = (1e3 * median(column) for column in zip(*times, strict=True))
    peaks = [peak_bytes(lambda s=stepper: s.step(batches[0])) / 1e6 for stepper in steppers.values()]
    heads = settings["mars-t"].readout.heads  # type: ignore[union-attr]
    return [
        f"{name}, L={length}, K={heads}",
        f"{backbone:.0f}",
        f"{mars:.0f}",
        f"{median(ratios):.2f}×",
        f"{peaks[0]:.0f}",
        f"{peaks[1]:.0f}",
    ]


def epoch_against_bound(split: Split, name: str, settings: ModelSettings) -> list[str]:
    """A whole epoch against the time its multiplications take at the speed of one large matrix product."""
    stepper = Stepper(settings, split.histories.n_items)
    batches = training_batches(split, settings.length, True, TrainingSettings(), 0)
    sample = [batches[index] for index in range(0, len(batches), max(1, len(batches) // 8))]
    accumulates = sum(multiply_accumulates(lambda b=batch: stepper.step(b)) for batch in sample)
    accumulates /= sum(map(targets, sample))
    building = spent = 0.0
    total = 0
    for index in range(len(batches)):
        start = time.perf_counter()
        batch = batches[index]
        building += time.perf_counter() - start
        stepper.step(batch)
        spent += time.perf_counter() - start
        total += targets(batch)
    start = time.perf_counter()
    training_batches(split, settings.length, True, TrainingSettings(), 1)
    building += time.perf_counter() - start
    bound = accumulates * total / peak_speed()
    return [
        name,
        f"{spent:.1f}",
        f"{bound:.1f}",
        f"{spent / bound:.1f}×",
        f"{total / spent:,.0f}",
        f"{100 * building / spent:.2f} %",
    ]


def shares(split: Split, settings: ModelSettings) -> dict[str, float]:
    """Milliseconds of a training step by part, the first entry all of it."""
    stepper = Stepper(settings, split.histories.n_items)
    batches = training_batches(split, settings.length, True, TrainingSettings(), 0)
    chosen = [batches[index] for index in range(STEPS)]
    stepper.step(chosen[0])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        start = time.perf_counter()
        for batch in chosen:
            stepper.step(batch)
        spent = time.perf_counter() - start
    parts: dict[str, float] = defaultdict(float)
    for event in profile.events():
        parts[part_of(event)] += event.self_cpu_time_total / 1e3 / STEPS
    whole = 1e3 * spent / STEPS
    return {"all": whole, **parts, "between operations": whole - sum(parts.values())}


def part_of(event: Any) -> str:
    """The part of the outermost event that belongs to one."""
    found = "elementwise and rest"
    while event is not None:
        found = next((part for name, part in PARTS.items() if event.name.startswith(name)), found)
        event = event.cpu_parent
    return found


def peak_speed() -> float:
    """Multiply-accumulates per second of a large square matrix product."""
    size = 2048
    left, right = torch.randn(size, size), torch.randn(size, size)
    return size**3 / medians({"product": lambda: left @ right}, 7)["product"]


def settings_for(model: str, length: int) -> ModelSettings:
    return model_settings(model, 165.5 if length > 50 else 8.9, options={"length": length})


def main() -> None:
    splits = {name: split_like(name) for name in DATA}
    lengths = {"beauty": 50, "ml-1m": 200}
    show(
        "mars-t, the same (past, next item) pairs: targets per second",
        ["data", "all positions in one pass", "a row per prefix", "faster"],
        [one_pass_against_prefixes(s, title, settings_for("mars-t", lengths[n])) for n, (s, title) in splits.items()],
    )
    show(
        "A training step of 2,048 targets: mars-t beside its backbone (wanted: at most 1.25× and 1.6×)",
        ["data", "backbone ms", "mars-t ms", "ratio", "backbone peak MB", "mars-t peak MB"],
        [mars_against_backbone(s, title, lengths[n]) for n, (s, title) in splits.items()],
    )
    show(
        "A whole epoch beside its matrix products at full speed",
        ["data", "epoch s", "bound s", "ratio", "targets/s", "building batches (wanted: < 5 %)"],
        [
            epoch_against_bound(s, f"{model}, {title}", settings_for(model, lengths[n]))
            for n, (s, title) in splits.items()
            for model in MODELS
        ],
    )
    split, title = splits["ml-1m"]
    profiles = {model: shares(split, settings_for(model, 200)) for model in MODELS}
    rows = {
        part: [f"{profiles[model].get(part, 0.0):.1f}" for model in MODELS]
        for model in MODELS
        for part in profiles[model]
    }
    show(
        f"Where a training step of 2,048 targets goes on {title}, ms",
        ["part", *MODELS],
        [[part, *cells] for part, cells in sorted(rows.items(), key=lambda row: -float(row[1][-1]))],
        "with the profiler on, which costs some microseconds an operation",
    )


if __name__ == "__main__":
    main()
