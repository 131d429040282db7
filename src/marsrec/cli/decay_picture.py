"""The picture of the demonstration: decay as it is in the data, beside what a model learned of it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from marsrec.data.hawkes import HawkesTruth
from marsrec.data.moments import spell_duration
from marsrec.lab.plot import COLORS, STYLES, plot


def draw_decay(path: Path, truth: HawkesTruth, lives: Sequence[float], gate: Sequence[float]) -> None:
    """Draw the true excitation kernels and the learned decay curves over age, on logarithmic time."""
    hours = np.logspace(-2, np.log10(24 * 90), 400)
    figure, (left, right) = plot(2, width=11, height=5, share_y=True)
    true = np.log(2) / truth.rates
    for axis, halves, weights, name in ((left, true, truth.weights, "weight"), (right, lives, gate, "gate")):
        mixed = np.zeros_like(hours)
        for index, k in enumerate(np.argsort(halves)):
            curve = 0.5 ** (hours / halves[k])
            mixed += weights[k] * curve / np.sum(weights)
            label = f"half-life {spell_duration(3600 * halves[k])}, {name} {weights[k]:.2f}"
            axis.plot(hours, curve, label=label, linestyle=STYLES[index + 1], color=COLORS[index + 1])
        axis.plot(hours, mixed, color="black", linewidth=3, alpha=0.35, label="all together")
    left.set_title("What the data do: excitation by an earlier event")
    right.set_title("What the model learned: weight of an event by its age")
    marks = {1 / 60: "1 min", 1: "1 h", 24: "1 day", 24 * 7: "1 week", 24 * 90: "90 days"}
    for axis in (left, right):
        axis.set_xscale("log")
        axis.set_xticks(list(marks), list(marks.values()))
        axis.minorticks_off()
        axis.set_xlabel("age of the event")
        axis.set_ylim(0, 1.02)
        axis.legend(frameon=False, fontsize=9, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    left.set_ylabel("relative to a new event")
    figure.savefig(path, dpi=150)
