"""What the recipes cost: parameters, multiply-accumulates, time and memory, measured side by side in one run."""

import json
import logging
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from benchmarks.measure import multiply_accumulates, peak_bytes

from marsrec.atomic import atomic_file
from marsrec.data.batches import Batch
from marsrec.data.catalog import CATALOG
from marsrec.data.hawkes import HawkesSettings
from marsrec.data.source import EMBEDDED
from marsrec.errors import SettingsError
from marsrec.models import DENSE_FROM, RECIPES, SPARSE_LENGTH, model_settings
from marsrec.paper import PAPER, paper_options
from marsrec.provenance import machine, versions
from marsrec.settings import Settings

log = logging.getLogger("marsrec")

FOLDER = "efficiency"
"""Of the measurements, beside the results."""
ROWS = 16
"""Histories of a batch."""
ROUNDS = 5


class Cost(Settings):
    """What one recipe costs."""

    model: str
    parameters: int
    accumulates: float
    """Multiply-accumulates of one forward pass that gives the states of all events of a history, in millions."""
    inference: float
    """Milliseconds to turn one history into a user vector, median of the rounds."""
    inference_quartiles: tuple[float, float] | None = None
    """The lower and the upper one of the rounds, where they were noted."""
    step: float
    """Milliseconds of a training step per target, median of the rounds."""
    step_quartiles: tuple[float, float] | None = None
    memory: float
    """Megabytes that a training step on `ROWS` histories held at most."""


class Costs(Settings):
    """What all recipes cost on histories of one size."""

    data: str
    items: int
    length: int
    rows: list[Cost]
    versions: dict[str, str]
    machine: dict[str, Any]


def measure(data: str, rounds: int = ROUNDS) -> Costs:
    """Measure all recipes on random histories as long as the models look back, at the size of a data set.

    Recipes take turns, and the median of the rounds counts: a busy machine is busy for all of them.
    """
    if data == EMBEDDED:
        items = HawkesSettings().items
    elif data in CATALOG:
        items = CATALOG[data].expected.items
    else:
        raise SettingsError(f"{data!r}: efficiency is measured at the size of {EMBEDDED} or of {', '.join(CATALOG)}.")
    average = DENSE_FROM if data in PAPER and PAPER[data].length > SPARSE_LENGTH else 0.0
    plans = {name: model_settings(name, average, options=paper_options(data, name)) for name in RECIPES}
    length = next(iter(plans.values())).length
    torch.manual_seed(0)
    batch = _random_batch(items, length)
    models = {name: settings.build(items) for name, settings in plans.items()}
    accumulates: dict[str, float] = {}
    memory: dict[str, int] = {}
    seconds: dict[str, dict[str, list[float]]] = {"inference": {}, "step": {}}
    for turn in range(rounds + 1):
        for name, settings in plans.items():
            model = models[name]
            trained = batch if model.causal else _only_last(batch)

            def encode(model: Any = model) -> None:
                with torch.no_grad():
                    model(batch)

            def whole_pass(model: Any = model) -> None:
                one = batch[:1]
                embedded, states = model.encode(one)  # the states of all events, as the paper counts
                model.readout(states, embedded, one, at_targets=False)

            def step(model: Any = model, settings: Any = settings, trained: Batch = trained) -> None:
                model.zero_grad()
                torch.stack(list(settings.objective.losses(model, trained).values())).sum().backward()  # type: ignore[no-untyped-call]

            model.eval()
            if turn == 0:
                accumulates[name] = multiply_accumulates(whole_pass) / 1e6
            taken = {"inference": _seconds(encode)}
            model.train()
            taken["step"] = _seconds(step) / int((trained.targets > 0).sum()) * ROWS
            if turn == 0:
                memory[name] = peak_bytes(step)
            else:  # the first turn compiles
                for kind, value in taken.items():
                    seconds[kind].setdefault(name, []).append(1000 * value / ROWS)
    return Costs(
        data=data,
        items=items,
        length=length,
        rows=[
            Cost(
                model=name,
                parameters=models[name].parameter_count(),
                accumulates=round(accumulates[name], 3),
                inference=round(median(seconds["inference"][name]), 4),
                inference_quartiles=_quartiles(seconds["inference"][name]),
                step=round(median(seconds["step"][name]), 4),
                step_quartiles=_quartiles(seconds["step"][name]),
                memory=round(memory[name] / 1e6, 1),
            )
            for name in RECIPES
        ],
        versions=versions(),
        machine=machine(),
    )


def measured(data: str, results: Path, rounds: int = ROUNDS) -> Path:
    """Measure unless that was done before, and write it beside the results."""
    path = results / FOLDER / f"{data}.json"
    if path.exists():
        log.info("Measured before; delete this file to measure anew:")
    else:
        log.info(f"Measuring what the recipes cost at the size of {data} …")
        costs = measure(data, rounds)
        with atomic_file(path) as temporary:
            temporary.write_text(json.dumps(costs.model_dump(mode="json"), indent=1) + "\n", encoding="utf-8")
    return path


def _random_batch(items: int, length: int) -> Batch:
    codes = torch.randint(1, items + 1, (ROWS, length + 1))
    times = torch.randint(0, 86_400, (ROWS, length + 1)).cumsum(1)
    lengths = torch.full((ROWS,), length)
    batch = Batch(codes[:, :-1], times[:, :-1], lengths, codes[:, 1:], times[:, 1:])
    return Batch(batch.items, batch.times, lengths, batch.targets, batch.target_times, twins=_only_last(batch))


def _only_last(batch: Batch) -> Batch:
    """The same histories with a target at the latest event only."""
    targets = torch.zeros_like(batch.targets)
    targets[:, -1] = batch.targets[:, -1]
    return Batch(batch.items, batch.times, batch.lengths, targets, batch.target_times, twins=batch.twins)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def _quartiles(values: Sequence[float]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.25, 0.75])
    return round(float(low), 4), round(float(high), 4)
