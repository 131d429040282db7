"""The look that all figures share, and names of points that cover nothing."""

from collections.abc import Collection, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.errors import needs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLORS = ("#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
"""Told apart by the colour-blind (Okabe and Ito); in black and white the styles and markers tell them apart."""
STYLES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)), (0, (10, 2, 2, 2)), (0, (2, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "//", "..", "xx", "\\\\", "--", "++", "oo")


def plot(
    columns: int = 1, width: float | None = None, height: float = 3.6, *, rows: int = 1, share_y: bool = False
) -> "tuple[Figure, list[Axes]]":
    """An empty figure with axes side by side, row after row, in the look that all figures share."""
    with needs("plot", "drawing figures"):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        rows, columns, figsize=(width or 4.6 * columns, height), layout="constrained", squeeze=False, sharey=share_y
    )
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.grid(alpha=0.25, linewidth=0.6)
    return figure, list(axes.flat)


def name_points(axis: "Axes", points: Mapping[str, tuple[float, float]], bold: Collection[str] = ()) -> None:
    """Write the names of points beside them, or at a thin line where names, points or curves would be covered.

    The limits and labels of the axis must be set before: what is free depends on its size.
    """
    from matplotlib.path import Path as Line
    from matplotlib.transforms import Bbox

    axis.figure.draw_without_rendering()  # type: ignore[union-attr]  # lays out the axes
    point = axis.figure.dpi / 72  # in pixels
    spots = {name: axis.transData.transform(place) for name, place in points.items()}
    sides = np.array([(1, 0), (-1, 0), (0, 1), (0, -1), *product((0.6, -0.6, 1, -1), (1, -1))])
    curves = [line.get_transform().transform_path(line.get_path()) for line in axis.lines]
    boxes: list[Bbox] = []
    lines: list[Line] = []

    def collisions(name: str, box: Bbox, line: Line) -> tuple[int, int]:
        """What the name would cover, and what its line would cross."""
        marks = [Bbox([spot, spot]) for other, spot in spots.items() if other != name]
        covered = sum(box.overlaps(other) for other in [*(mark.padded(6 * point) for mark in marks), *boxes])
        covered += sum(other.intersects_bbox(box, filled=False) for other in [*curves, *lines])
        crossed = sum(line.intersects_bbox(other) for other in [*(mark.padded(3 * point) for mark in marks), *boxes])
        crossed += sum(line.intersects_path(other) for other in lines)
        return covered + (axis.bbox.count_contains(box.corners()) < 4), crossed

    for name, spot in spots.items():
        look: dict[str, Any] = {"ha": "center", "va": "center", "size": 8, "weight": "bold" if name in bold else None}
        look["arrowprops"] = {"arrowstyle": "-", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4}
        text = axis.annotate(name, points[name], (0, 0), textcoords="offset points", **look)
        size = np.array(text.get_window_extent().size) / point
        found = []
        for gap, side in product(range(7, 70, 7), sides):
            x, y = side * (gap + size / 2)
            middle = spot + np.array([x, y]) * point
            box, line = Bbox([middle - size / 2 * point, middle + size / 2 * point]), Line([spot, middle])
            found.append((collisions(name, box, line), gap * np.hypot(*side), (x, y), box, line))
        _, gap, offset, box, line = min(found, key=lambda place: place[:2])  # the nearest of the free ones
        text.set_position(offset)
        text.arrow_patch.set_visible(gap > 7)  # type: ignore[union-attr]
        boxes.append(box)
        lines.append(line)
