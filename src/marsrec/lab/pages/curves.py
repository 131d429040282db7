"""How training went: the validation metric over epochs."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from marsrec.lab.comparison import Contest
from marsrec.lab.page import Picture, Section
from marsrec.lab.plot import COLORS, STYLES, plot
from marsrec.training.settings import MONITOR

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Curve = Sequence[float]


def section(contests: Sequence[Contest]) -> Section:
    """A figure per data set."""
    parts: list[str | Picture] = [
        f"Validation {MONITOR} × 100 after each epoch, of the first seed of each model. The figures are of the "
        "weights of the best epoch."
    ]
    for contest in contests:
        curves = {name: curve for name, (first, *_) in contest.models.items() if (curve := monitored(first.curve))}
        caption = f"Validation {MONITOR} over epochs on {contest.data}."
        shown = Picture(f"curves-{contest.data}", caption, partial(_draw, curves)) if curves else "No curve was noted."
        parts += [f"## {contest.data}", shown]
    return Section("curves", "Training curves", parts)


def monitored(epochs: Sequence[Mapping[str, float]]) -> Curve:
    """The monitored metric, × 100, of the epochs that noted it."""
    return [100 * epoch[name] for epoch in epochs if (name := f"valid/{MONITOR}") in epoch]


def _draw(curves: Mapping[str, Curve]) -> "Figure":
    figure, (axis,) = plot(width=8.0, height=4.2)
    for index, (name, curve) in enumerate(curves.items()):
        color, style = COLORS[index % 8], STYLES[(index + index // 8) % 8]  # 64 lines that are not alike
        axis.plot(range(1, len(curve) + 1), curve, color=color, linestyle=style, label=name)
    axis.set(xlabel="epoch", ylabel=f"validation {MONITOR} × 100")
    figure.legend(frameon=False, fontsize=8, loc="outside right upper")
    return figure
