"""A training step of every recipe: targets per second, memory, and multiply-accumulates."""

import time

from benchmarks.measure import multiply_accumulates, peak_bytes, show, split_like
from benchmarks.training import Stepper, targets
from marsrec.data.batches import Batch
from marsrec.data.splits import Split
from marsrec.models import RECIPES, model_settings, targets_per_batch
from marsrec.nn.settings import ModelSettings
from marsrec.training.module import training_batches
from marsrec.training.settings import TrainingSettings

STEPS = 6


def step(split: Split, name: str, length: int) -> list[str]:
    """Steps on batches drawn from all of an epoch, short and long histories alike."""
    settings = model_settings(name, split.average_length, options={"length": length})
    stepper = Stepper(settings, split.histories.n_items)
    causal = stepper.model.causal
    chosen = typical_batches(split, settings, causal)
    count = sum(map(targets, chosen))
    stepper.step(chosen[0])  # compiles
    start = time.perf_counter()
    for batch in chosen:
        stepper.step(batch)
    seconds = time.perf_counter() - start
    peak = max(peak_bytes(lambda b=batch: stepper.step(b)) for batch in chosen[:3])
    accumulates = sum(multiply_accumulates(lambda b=batch: stepper.step(b)) for batch in chosen)
    return [
        name,
        "windows" if causal else "prefixes",
        f"{count / seconds:,.0f}",
        f"{accumulates / count / 1e6:.2f}",
        f"{accumulates / seconds / 1e9:.1f}",
        f"{peak / 1e6:,.0f}",
        f"{count / len(chosen):,.0f}",
    ]


def typical_batches(split: Split, settings: ModelSettings, causal: bool) -> list[Batch]:
    """A few batches from all of an epoch, short and long histories alike."""
    # Prefixes of long histories are many positions each: fewer targets are enough for a time per target.
    usual = targets_per_batch(settings)
    budget = TrainingSettings(targets_per_batch=usual if causal or settings.length <= 50 else min(usual, 256))
    batches = training_batches(split, settings.length, causal, budget, 0, twins=settings.objective.needs_twins)
    return [batches[index] for index in range(0, len(batches), max(1, len(batches) // STEPS))][:STEPS]


def main() -> None:
    for data, length in (("beauty", 50), ("ml-1m", 200)):
        split, title = split_like(data)
        show(
            f"A training step on {title}, L={length}",
            ["recipe", "rows", "targets/s", "million MACs/target", "GMAC/s", "peak MB", "targets per step"],
            [step(split, name, length) for name in RECIPES],
            "Multiply-accumulates as torch counts them, forward and backward, with the products over all items; what "
            "numba's kernels multiply (scans, attention between its products) is not counted.",
        )


if __name__ == "__main__":
    main()
