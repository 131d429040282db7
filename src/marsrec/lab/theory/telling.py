"""What the sections on the propositions share."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from marsrec.lab.page import COLORS, MARKERS, STYLES, Picture, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part = str | Table | Picture
"""A paragraph, a table or a figure."""


def draw_line(axis: "Axes", index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """A line that is told from others by colour, dashes and markers."""
    style = {"color": COLORS[index], "linestyle": STYLES[index], "marker": MARKERS[index]}
    axis.plot(x, np.maximum(y, 1e-12), label=label, markersize=5, **style)  # type: ignore[arg-type]


def listed(names: Sequence[str]) -> str:
    """Names with an "and", or "none"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"
