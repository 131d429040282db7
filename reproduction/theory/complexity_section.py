"""Proposition 2 on the page: how time, multiply-accumulates and memory of the operator grow."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any

from marsrec.lab.page import Picture, Table, digits
from marsrec.lab.plot import COLORS, plot
from reproduction.theory.complexity import ORDERS, READ, Sweep
from reproduction.theory.wording import Part, draw_line, exponent, listed, plain_ticks

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEEP = 1.25
"""An exponent that counts as more than linear, given how disturbed timings are."""
FLAT = 0.75
"""One that counts as less than linear."""
CLOSE = 0.05
"""How far apart exponents of what is counted, not timed, may be to count as the same."""
UNITS = {"L": "length L (events)", "d": "width d (dimensions)", "K": "number K of heads"}


def tell(measured: Mapping[str, Any], made: str) -> list[Part]:
    """The section, from what was measured, and a sentence on the machine."""
    sweeps = [Sweep(**sweep) for sweep in measured["sweeps"]]
    read, training = ([sweep for sweep in sweeps if (sweep.name == READ) == which] for which in (True, False))
    base = measured["base"]
    trained = measured.get("trained")
    at = ", ".join(f"{name} = {value:,}" for name, value in base.items())
    passes = "forward and backward" if trained else "here the forward pass alone"
    where = trained or base | {"histories": 1, "repetitions": measured["repetitions"]}
    brackets = ", in brackets their quartiles" if all(sweep.quartiles for sweep in sweeps) else ""
    disturbed = median(share for sweep in sweeps for share in sweep.spread)
    return [
        "## Proposition 2: complexity",
        "It says that one readout, at the latest event, takes O(L d K) time, and O(L K + d K) memory beside the "
        f"states. One size at a time was swept around {at}. Exponents are fitted to the upper half of the sizes, where "
        "costs that do not grow weigh least; 1 is linear.",
        _on_reading(read, base),
        Table(
            ["swept", *_COLUMNS, "time and MACs as it says", "memory as it says"],
            [[UNITS[sweep.size], *_cells(sweep), "1", "1" if sweep.size == "K" else "0 to 1"] for sweep in read],
            f"One readout, {measured['histories']} histories at once. In L K + d K either term may be the larger one. "
            f"Medians of {measured['repetitions']} repetitions in turns{brackets}; in the median row of this table and "
            f"the next the quartiles are {disturbed:.0%} of the median apart. MACs are multiply-accumulates in matrix "
            "products as torch counts them in the reference implementation; memory is the most that torch's allocator "
            f"held. float32, {measured['threads']} thread(s). {made}",
        ),
        _picture(
            "theory-complexity",
            "Cost of one readout per history against the length, the width and the number of heads",
            read,
            "L (events), d (dimensions) or K (heads)",
            lambda sweep: UNITS[sweep.size],
        ),
        f"Training reads out at every event, {passes}, which the proposition does not speak of. "
        + _on_training(training),
        Table(
            ["what", "operations", *_COLUMNS, "time and MACs as the operations say"],
            [[sweep.name, ORDERS[sweep.name][0], *_cells(sweep), str(ORDERS[sweep.name][1])] for sweep in training],
            f"Every event read out, over L, {passes}: d = {where['d']}, K = {where['K']}, histories at once: "
            f"{where['histories']}, {where['repetitions']} repetitions in turns. MACs of the streaming form are "
            "counted in its matrix products, and what its compiled parts do is added from shapes; those "
            "of attention are of all pairs, though it skips those that the causal mask hides.",
        ),
        _picture(
            "theory-training",
            f"Cost of reading out at every event, {passes}, per history against its length",
            training,
            "length L (events)",
            lambda sweep: sweep.name,
        ),
    ]


def _on_reading(read: Sequence[Sweep], base: Mapping[str, int]) -> str:
    """What holds of the proposition, by the numbers."""
    times = {sweep.size: _fitted(sweep, sweep.seconds) for sweep in read}
    steep = [size for size, power in times.items() if power > STEEP]
    flat = [size for size, power in times.items() if power < FLAT]
    if steep:
        verdict = f"More than linear, beyond {STEEP:g}, in {listed(steep)}: that is not what the proposition says."
    elif flat:
        verdict = (
            f"None is above {STEEP:g}, but below {FLAT:g} in {listed(flat)} costs that do not grow still weigh: such "
            "times do not show how the work grows."
        )
    else:
        verdict = f"None is above {STEEP:g}: no faster than L d K, as it says."
    sentences = [f"Time grows with {_powers(times)}. {verdict}"]
    counted = {sweep.size: _fitted(sweep, sweep.accumulates) for sweep in read if sweep.accumulates}
    held = [sweep for sweep in read if sweep.peak]
    if not counted or not held:
        return " ".join([*sentences, "Multiply-accumulates and memory were not measured."])
    other = [size for size, power in counted.items() if abs(power - 1) > CLOSE]
    sentences.append(
        f"Multiply-accumulates grow with {_powers(counted)}: "
        + (f"not like L d K in {listed(other)}." if other else "like L d K, as it says.")
    )
    memory = {sweep.size: _fitted(sweep, sweep.peak or []) for sweep in held}
    beyond = [s.size for s in held if memory[s.size] > _fitted(s, _allowed(s, base)) + STEEP - 1]
    floats = [p / 4 / allowed for s in held for p, allowed in zip(s.peak or [], _allowed(s, base), strict=True)]
    sentences.append(
        f"Memory grows with {_powers(memory)}, "
        + (
            f"faster than L K + d K in {listed(beyond)}: that is not what it says."
            if beyond
            else "no faster than L K + d K, as it says."
        )
        + f" Over all sizes it is {min(floats):.1f} to {max(floats):.1f} numbers of 4 bytes for each of L K + d K"
        + (", without a copy of the L d states." if memory.get("d", 1.0) < 0.5 else ".")
    )
    return " ".join(sentences)


def _on_training(training: Sequence[Sweep]) -> str:
    """Which form grows how with the length."""
    grown = []
    for sweep in training:
        time, order = _fitted(sweep, sweep.seconds), ORDERS[sweep.name][1]
        verdict = f"as {ORDERS[sweep.name][0]} says"
        if abs(time - order) > STEEP - 1:
            verdict = f"{'more' if time > order else 'less'} than the {order} of {ORDERS[sweep.name][0]}"
            verdict += "" if time > order else ", since what grows slower still weighs"
        grown.append(f"{sweep.name}, {time:.2f}, {verdict}")
    text = f"Exponents of L in time: {'; '.join(grown)}."
    if held := [sweep for sweep in training if sweep.peak]:
        square = [sweep.name for sweep in held if _fitted(sweep, sweep.peak or []) > STEEP]
        text += (
            f" Memory grows more than linearly, beyond {STEEP:g}, for {'; '.join(square)}."
            if square
            else f" Memory has none above {STEEP:g}: L × L weights are never held at once."
        )
    return text


_COLUMNS = ["sizes", "milliseconds per history at the largest", "exponent: time", "MACs", "memory"]


def _cells(sweep: Sweep) -> list[str]:
    quartiles = ""
    if sweep.quartiles:
        low, high = sweep.quartiles[-1]
        quartiles = f" ({digits(1e3 * low)} to {digits(1e3 * high)})"
    counted = (sweep.accumulates, sweep.peak)
    return [
        f"{sweep.values[0]:,} to {sweep.values[-1]:,}",
        digits(1e3 * sweep.seconds[-1]) + quartiles,
        f"{_fitted(sweep, sweep.seconds):.2f}",
        *("not measured" if values is None else f"{_fitted(sweep, values):.2f}" for values in counted),
    ]


def _allowed(sweep: Sweep, base: Mapping[str, int]) -> list[float]:
    """L K + d K at the sizes of a sweep."""
    chosen = [{**base, sweep.size: value} for value in sweep.values]
    return [float(size["L"] * size["K"] + size["d"] * size["K"]) for size in chosen]


def _fitted(sweep: Sweep, costs: Sequence[float]) -> float:
    """The exponent over the upper half of the sizes."""
    half = len(sweep.values) // 2
    return exponent(sweep.values[half:], costs[half:])


def _powers(exponents: Mapping[str, float]) -> str:
    return "the exponents " + ", ".join(f"{power:.2f} in {size}" for size, power in exponents.items())


def _picture(name: str, what: str, sweeps: Sequence[Sweep], size: str, title: Callable[[Sweep], str]) -> Picture:
    panels = ["time"]
    if all(sweep.accumulates and sweep.peak for sweep in sweeps):
        panels += ["multiply-accumulates", "peak memory"]
    bars = ", with bars between the quartiles" if all(sweep.quartiles for sweep in sweeps) else ""
    caption = f"{what}, both on log scales: {listed(panels)}{bars}. Exponents of the upper half of the sizes."
    return Picture(name, caption, partial(_draw, sweeps, len(panels), size, title))


def _draw(sweeps: Sequence[Sweep], panels: int, size: str, title: Callable[[Sweep], str]) -> "Figure":
    figure, axes = plot(panels, width=4.0 * panels if panels > 1 else 5.6, height=4.8)
    costs: list[tuple[str, float, Callable[[Sweep], Sequence[float]]]] = [
        ("milliseconds per history", 1e3, lambda sweep: sweep.seconds),
        ("million multiply-accumulates per history", 1e-6, lambda sweep: sweep.accumulates or []),
        ("peak megabytes per history", 1e-6, lambda sweep: sweep.peak or []),
    ]
    for panel, (axis, (label, factor, cost)) in enumerate(zip(axes, costs, strict=False)):
        for index, sweep in enumerate(sweeps):
            shown = [factor * value for value in cost(sweep)]
            draw_line(axis, index, sweep.values, shown, f"{title(sweep)}: {_fitted(sweep, cost(sweep)):.2f}")
            if panel == 0 and sweep.quartiles:
                low, high = ([factor * ends[which] for ends in sweep.quartiles] for which in (0, 1))
                axis.vlines(sweep.values, low, high, colors=COLORS[index], linewidth=1)
        axis.set(xlabel=size, ylabel=label, xscale="log", yscale="log")
        ticks = sorted({value for sweep in sweeps for value in sweep.values})
        ticks = ticks[:: 1 + len(ticks) // 7]
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        axis.minorticks_off()
        plain_ticks(axis)
        below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14)}
        axis.legend(frameon=False, fontsize=8, title="exponent", title_fontsize=8, **below)
    return figure
