"""How a training step grows with the length of histories: attention and Mamba, the dense and the streaming form.

`python -m benchmarks.long_histories FOLDER` also draws the two pictures of the docs into FOLDER.
"""

import sys
from pathlib import Path

import torch

from benchmarks.measure import medians, peak_bytes, show, split_like
from benchmarks.training import STEPS, Stepper, settings_for
from marsrec.data.batches import Batch
from marsrec.models import model_settings
from marsrec.nn.settings import ModelSettings
from marsrec.training.module import training_batches
from marsrec.training.settings import TrainingSettings

ITEMS = 3_416  # those of ml-1m
POSITIONS = 3_200  # in a step
LENGTHS = (50, 100, 200, 400, 800, 1600, 3200, 6400)
MODELS = ("sasrec", "mars-t", "mamba4rec", "mars-m")
FORMS = ("dense", "streaming")

Curve = dict[int, tuple[float, int]]
"""Seconds and peak bytes of a step, per history, by length."""


def batch_of(length: int) -> Batch:
    """Histories of random items; gaps from seconds to months."""
    generator = torch.Generator().manual_seed(length)
    rows = max(1, POSITIONS // length)
    items = torch.randint(1, ITEMS + 1, (rows, length + 1), generator=generator)
    gaps = torch.exp(torch.rand(rows, length + 1, generator=generator) * 15).long()
    times = 1_000_000_000 + gaps.cumsum(1)
    return Batch(items[:, :-1], times[:, :-1], torch.full((rows,), length), items[:, 1:], times[:, 1:])


def grow(settings: dict[str, dict[int, ModelSettings]]) -> dict[str, Curve]:
    """Steps of several models over batches of growing length; at each length they take turns."""
    curves: dict[str, Curve] = {name: {} for name in settings}
    lengths = sorted({length for chosen in settings.values() for length in chosen})
    for length in lengths:
        batch = batch_of(length)
        steppers = {name: Stepper(chosen[length], ITEMS) for name, chosen in settings.items() if length in chosen}
        seconds = medians({name: (lambda s=s, b=batch: s.step(b)) for name, s in steppers.items()}, 7)
        for name, stepper in steppers.items():
            peak = peak_bytes(lambda s=stepper, b=batch: s.step(b))
            curves[name][length] = (seconds[name] / len(batch.items), peak // len(batch.items))
    return curves


def tabulate(title: str, curves: dict[str, Curve], caption: str) -> None:
    lengths = sorted({length for curve in curves.values() for length in curve})
    for unit, digits, part, factor in (("ms", 1, 0, 1e3), ("peak MB", 1, 1, 1e-6)):
        rows = [
            [name, *(f"{factor * curve[n][part]:.{digits}f}" if n in curve else "" for n in lengths)]
            for name, curve in curves.items()
        ]
        show(f"{title}: {unit} per history", ["L", *map(str, lengths)], rows, caption if part else "")


def on_ml_1m() -> None:
    """Steps of the four models on batches as they are in training."""
    split, name = split_like("ml-1m")
    steppers = {model: Stepper(settings_for(model, 200), split.histories.n_items) for model in MODELS}
    batches = training_batches(split, 200, True, TrainingSettings(), 0)
    spent: dict[str, list[float]] = {model: [] for model in MODELS}
    for index in range(STEPS + 1):
        batch = batches[index]
        seconds = medians({model: (lambda s=s, b=batch: s.step(b)) for model, s in steppers.items()}, 1)
        for model in MODELS:
            spent[model].append(seconds[model])
    middle = {model: sorted(times[1:])[STEPS // 2] for model, times in spent.items()}
    rows = [
        [
            model,
            f"{1e3 * middle[model]:.0f}",
            f"{middle[model] / middle['mars-t']:.2f}×",
            f"{middle[model] * len(batches):.0f}",
            f"{peak_bytes(lambda s=steppers[model]: s.step(batches[0])) / 1e6:.0f}",
        ]
        for model in MODELS
    ]
    show(
        f"A training step of 2,048 targets on {name}, windows of 200 that overlap by half",
        ["", "ms", "of mars-t", "epoch s, from the median step", "peak MB"],
        rows,
    )


def draw(curves: dict[str, Curve], path: Path, title: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.2), layout="constrained")
    for (name, curve), marker, style in zip(curves.items(), "os^D", ("-", "--", "-", "--"), strict=False):
        lengths = sorted(curve)
        axes.semilogx(lengths, [1e6 * curve[n][0] / n for n in lengths], marker=marker, linestyle=style, label=name)
    shown = sorted({length for curve in curves.values() for length in curve})
    axes.set_xticks(shown, [f"{length:,}" for length in shown])
    axes.minorticks_off()
    axes.set(xlabel="events in a history", ylabel="µs of a training step, per event", title=title)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main(folder: Path | None = None) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)  # now, and not after minutes of measuring
    on_ml_1m()
    by_model = {model: {n: model_settings(model, 165.5, options={"length": n}) for n in LENGTHS} for model in MODELS}
    models = grow(by_model)
    tabulate("A training step", models, "every position has a target; 3,416 items; form auto")
    by_form = {
        form: {n: model_settings("mars-m", 165.5, options={"length": n, "readout.form": form}) for n in LENGTHS}
        for form in FORMS
    }
    forms = grow(by_form)
    tabulate("A training step of mars-m in both forms", forms, "every position has a target; 3,416 items")
    if folder is not None:
        draw(models, folder / "growth.png", "Time per event: flat for Mamba, growing for attention")
        draw(forms, folder / "forms.png", "mars-m, time per event: dense and streaming form of MARS")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
