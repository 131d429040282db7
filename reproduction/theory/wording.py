"""What the sections on the propositions share."""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.lab.page import Picture, Table
from marsrec.lab.plot import COLORS, MARKERS, STYLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Part = str | Table | Picture
"""A paragraph, a table or a figure."""


def draw_line(axis: "Axes", index: int, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """A line that differs from others by colour, dashes and markers."""
    style = {"color": COLORS[index], "linestyle": STYLES[index], "marker": MARKERS[index]}
    # Hollow, so that a marker does not hide the one below.
    axis.plot(x, np.maximum(y, 1e-12), label=label, markersize=6, markerfacecolor="none", **style)  # type: ignore[arg-type]


def plain_ticks(axis: "Axes") -> None:
    """Plain numbers at a log y axis, and enough of them: powers of 10 alone are too few within a decade or two."""
    from matplotlib.ticker import AutoLocator, LogLocator

    low, high = axis.get_ylim()
    steps = (1.0, 2.0, 5.0) if high < 1e4 * low else (1.0,)
    axis.yaxis.set_major_locator(AutoLocator() if high < 10 * low else LogLocator(subs=steps, numticks=30))
    axis.yaxis.set_major_formatter("{x:,g}")


def listed(names: Sequence[str]) -> str:
    """Names with an "and", or "none"."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names) or "none"


def down(bound: float) -> str:
    """A lower bound with three decimals: rounded down, else it would claim more than was shown.

    Examples
    --------
    >>> down(0.157635), down(0.14)
    ('0.157', '0.140')
    """
    return str(Decimal(str(bound)).quantize(Decimal("0.001"), rounding=ROUND_FLOOR))


def up(error: float) -> str:
    """An error that was found, with three digits: rounded up, so that it never stands below a bound of it.

    Examples
    --------
    >>> up(0.1433628), up(1.7662e-09), up(0.5)
    ('1.44e-01', '1.77e-09', '5.00e-01')
    """
    return f"{float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(str(error))):.2e}"


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The p of values ≈ c · size^p, by least squares on both logs.

    Examples
    --------
    >>> round(exponent([1, 2, 4], [3.0, 12.0, 48.0]), 6)
    2.0
    """
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def made_with(measured: Mapping[str, Any]) -> str:
    """With which versions and on which machine something was measured, as a sentence."""
    versions, machine = measured.get("versions"), measured.get("machine")
    if not versions or not machine:
        return "With which versions and on which machine this page was measured was not recorded."
    software = ", ".join(f"{name} {versions[name]}" for name in ("marsrec", "torch", "numpy", "scipy", "numba"))
    return (
        f"This page was measured with {software} and Python {versions['python']}, on {machine['system']} with "
        f"{machine['cpus']} CPUs ({machine['cpu capability']}, {machine['matrix products']})."
    )
