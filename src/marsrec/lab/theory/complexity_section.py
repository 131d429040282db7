"""Proposition 2 on the page: how the time of the operator grows."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from marsrec.lab.page import Picture, Table, plot
from marsrec.lab.theory.complexity import READ, TITLES, Sweep
from marsrec.lab.theory.telling import Part, draw_line, listed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEEP = 1.25
"""An exponent that counts as more than linear, given how disturbed timings are."""


def tell(measured: Mapping[str, Any]) -> list[Part]:
    """The section, from what was measured."""
    sweeps = [Sweep(**sweep) for sweep in measured["sweeps"]]
    read = [sweep for sweep in sweeps if sweep.name == READ]
    steep = [sweep.size for sweep in read if max(sweep.slope, sweep.last_slope) > STEEP]
    flat = [sweep.size for sweep in read if sweep.last_slope < 0.75]
    exponents = ", ".join(f"{sweep.slope:.2f} in {sweep.size}" for sweep in read)
    base = ", ".join(f"{name} = {value}" for name, value in measured["base"].items())
    verdict = (
        f"More than linear, beyond {STEEP:g}, in {listed(steep)}: that is not what the proposition says."
        if steep
        else f"None is above {STEEP:g}, also not between the two largest sizes: no faster than L d K, as it says."
    )
    if flat:
        verdict += f" In {listed(flat)} costs that do not grow still weigh at the largest sizes (below 0.75)."
    beside = "; ".join(f"{sweep.name}, {sweep.last_slope:.2f}" for sweep in sweeps if sweep.name != READ)
    rows = [
        [
            sweep.name,
            TITLES[sweep.name],
            sweep.size,
            f"{sweep.values[0]} to {sweep.values[-1]}",
            f"{1e3 * sweep.seconds[0]:.3f} to {1e3 * sweep.seconds[-1]:.3f}",
            f"{sweep.slope:.2f}",
            f"{sweep.last_slope:.2f}",
        ]
        for sweep in sweeps
    ]
    columns = ["what", "operations", "swept", "sizes", "milliseconds per history", "exponent", "at the end"]
    disturbed = median(share for sweep in sweeps for share in sweep.spread)
    return [
        "## Proposition 2: complexity",
        f"It says that the operator takes O(L d K) time. Read at the latest event, time grows with the exponents "
        f"{exponents}, swept one at a time around {base}; 1 is linear. {verdict}",
        "Training reads out at every event, which the proposition does not speak of. Exponents over L between the two "
        f"largest lengths: {beside}.",
        Table(
            columns,
            rows,
            f"Medians of {measured['repetitions']} repetitions in turns, {measured['threads']} thread(s), float32. In "
            f"the median row the middle half of the repetitions spans {disturbed:.0%} of their median. “Exponent” is "
            "fitted to all sizes, “at the end” to the two largest.",
        ),
        Picture(
            "theory-complexity",
            "Milliseconds per history against size, both on log scales. Left: the operator at the latest event, over "
            "each size. Right: over the length, beside attention and the training forms.",
            lambda: _draw_cost(sweeps),
        ),
    ]


def _draw_cost(sweeps: Sequence[Sweep]) -> "Figure":
    from matplotlib.ticker import AutoLocator, LogLocator

    figure, axes = plot(2, height=4.8)
    panels = [
        (READ, "L, d or K", [(s, s.size) for s in sweeps if s.name == READ]),
        ("over the length", "L", [(s, s.name) for s in sweeps if s.size == "L"]),
    ]
    for axis, (title, label, lines) in zip(axes, panels, strict=True):
        for index, (sweep, name) in enumerate(lines):
            milliseconds = [1e3 * second for second in sweep.seconds]
            draw_line(axis, index, sweep.values, milliseconds, f"{name}: {sweep.slope:.2f}")
        axis.set(title=title, xlabel=label, xscale="log", yscale="log")
        ticks = sorted({value for sweep, _ in lines for value in sweep.values})
        axis.set_xticks(ticks, [str(tick) for tick in ticks], fontsize=8)
        low, high = axis.get_ylim()  # powers of 10 alone are too few ticks within a decade or two
        axis.yaxis.set_major_locator(AutoLocator() if high < 10 * low else LogLocator(subs=(1, 2, 5), numticks=20))
        axis.yaxis.set_major_formatter("{x:g}")
        axis.minorticks_off()
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
        axis.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8, **below)
    axes[0].set_ylabel("milliseconds per history")
    return figure
