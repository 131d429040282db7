"""A training step of every recipe: targets per second, memory, and multiply-accumulates."""

import time
from statistics import median

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.measure import peak_bytes, show, split_like
from benchmarks.training import Stepper, targets
from marsrec.data.splits import Split
from marsrec.models import RECIPES, model_settings
from marsrec.training.module import TrainingSettings, training_batches

STEPS = 6


def step(split: Split, name: str, length: int) -> list[str]:
    """Median of a few steps on batches of all lengths."""
    settings = model_settings(name, split.average_length, options={"length": length})
    stepper = Stepper(settings, split.histories.n_items)
    causal = stepper.model.causal
    # Prefixes of long histories are many positions each: fewer targets are enough for a time per target.
    budget = TrainingSettings(targets_per_batch=2048 if causal or length <= 50 else 256)
    batches = training_batches(split, length, causal, budget, 0, twins=settings.objective.needs_twins)
    chosen = [batches[index] for index in range(0, len(batches), max(1, len(batches) // STEPS))][: STEPS + 1]
    seconds = []
    for index, batch in enumerate(chosen):
        start = time.perf_counter()
        stepper.step(batch)
        if index:
            seconds.append((time.perf_counter() - start) / targets(batch))
    peak = max(peak_bytes(lambda b=batch: stepper.step(b)) for batch in chosen[:3])
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        stepper.step(chosen[0])
    accumulates = counter.get_total_flops() / 2 / targets(chosen[0])
    per_target = median(seconds)
    return [
        name,
        "windows" if causal else "prefixes",
        f"{1 / per_target:,.0f}",
        f"{accumulates / 1e6:.2f}",
        f"{accumulates / per_target / 1e9:.1f}",
        f"{peak / 1e6:,.0f}",
        f"{targets(chosen[0]):,}",
    ]


def main() -> None:
    for data, length in (("beauty", 50), ("ml-1m", 200)):
        split, title = split_like(data)
        show(
            f"A training step on {title}, L={length}",
            ["recipe", "rows", "targets/s", "million MACs/target", "GMAC/s", "peak MB", "targets in the step"],
            [step(split, name, length) for name in RECIPES],
            "Multiply-accumulates as torch counts them, forward and backward, with the products over all items; what "
            "numba's kernels multiply (scans, attention between its products) is not counted.",
        )


if __name__ == "__main__":
    main()
