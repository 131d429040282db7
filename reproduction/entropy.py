"""Where MARS helps: data on which attention is spread."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from marsrec.lab.comparison import EXPLAINED, Cell, difference, gain, told
from marsrec.lab.inspection import Inspection
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.plot import COLORS, MARKERS, plot
from marsrec.lab.results import Result, inspection_of
from reproduction.comparable import alike, as_published, find, published_name, whole
from reproduction.published import ENTROPY, ENTROPY_GAINS, MAIN, in_points

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def section(found: Sequence[Result], folder: Path) -> Section:
    """How widely the attention of a trained SASRec is spread, beside what MARS gains on the same data."""
    layers: list[list[str]] = []
    gains: list[list[Cell]] = []
    points: dict[str, tuple[float, float]] = {}
    run = whole(found)
    for data in [*run, *(name for name in ENTROPY if name not in map(published_name, run))]:
        results, name = alike(found, data), published_name(data)
        base, ours = find(results, "sasrec"), find(results, "mars-t")
        inspected = inspection_of(base[0], folder) if base else None
        known = not results or as_published(results)  # what was not run is shown by the paper's figures alone
        lacking = "not inspected" if base else "not run"
        layers += _layers(data, inspected or lacking, ENTROPY.get(name) if known else None)
        main = MAIN.get(name) if known else None
        published = main["mars-t"][0] / main["sasrec"][0] - 1 if main else None
        cells: list[Cell] = ["not run", "", f"{published:+.1%}" if published is not None else "none", ""]
        if base and ours:
            relative = gain(ours, base)
            cells[:2] = [f"{relative:+.1%}", difference(ours, base, folder, "HR@10")]
            cells[3] = in_points(relative, published)
            if inspected:
                points[data] = (mean(layer.mean for layer in inspected.attention), relative)
        beside = f"{ENTROPY_GAINS[name]:+.1%}" if known and name in ENTROPY_GAINS else "none"
        gains.append([data, *cells, beside])
    parts: list[str | Table | Picture] = [
        "Entropy of the attention weights, divided by the logarithm of the number of events that a position may look "
        "at: 1 is uniform, 0 looks at one event. Mean ± standard deviation over the positions of the test histories, "
        "layer by layer (of the first seed): of those that see at least two events, and of all, where one that sees a "
        'single event counts as 0. The paper takes "all valid query positions" and does not say what it makes of those '
        "that see a single event; it gives standard deviations of 0.27 to 0.42, without telling of which data and "
        "layer. It explains by the entropy where MARS helps: where attention is spread, there is more to gain.",
        Table(
            ["data", "layer", "two events or more", "against the paper", "all positions", "against the paper", "paper"],
            layers,
        ),
        "## What MARS gains there",
        Table(
            ["data", "mars-t against sasrec", "difference over users", "paper", "against it", "paper, beside entropy"],
            told(gains),
            f"HR@10. {EXPLAINED} The paper's gain is that of its main table. What it prints beside the "
            "entropies is over its best Transformer without time, which is fearec on sports and sasrec on the others, "
            "and on ml-1m that of the users with the longest histories alone.",
        ),
    ]
    if len(points) > 1:
        caption = (
            "Gain in HR@10 of mars-t over sasrec against the mean attention entropy of sasrec, a mark per data set."
        )
        parts.append(Picture("entropy", caption, partial(_draw_entropy, points)))
    return Section("entropy", "Attention entropy", parts)


def _layers(data: str, inspected: Inspection | str, theirs: Sequence[float] | None) -> list[list[str]]:
    """A row per layer, ours and the paper's; a text instead of ours says why they are lacking."""
    if isinstance(inspected, str):
        published = {str(layer): f"{value:.3f}" for layer, value in enumerate(theirs or ())} or {"": "none"}
        return [[data, layer, inspected, "", inspected, "", beside] for layer, beside in published.items()]
    rows = []
    for index, layer in enumerate(inspected.attention):
        cells = []
        for value, deviation in ((layer.mean, layer.std), (layer.mean_all, layer.std_all)):
            cells += [f"{value:.3f} ± {deviation:.3f}", f"{value - theirs[index]:+.3f}" if theirs else ""]
        rows.append([data, str(index), *cells, f"{theirs[index]:.3f}" if theirs else "none"])
    return rows


def _draw_entropy(points: dict[str, tuple[float, float]]) -> "Figure":
    figure, (axis,) = plot(width=5.6)
    for index, (data, (spread_out, gained)) in enumerate(points.items()):
        look: dict[str, Any] = {"color": COLORS[1], "marker": MARKERS[index % len(MARKERS)]}
        axis.scatter(spread_out, 100 * gained, **look)
        axis.annotate(data, (spread_out, 100 * gained), xytext=(6, 4), textcoords="offset points", size=9)
    axis.axhline(0, color="#555555", linewidth=0.8)
    axis.set_xlabel("normalised attention entropy of sasrec")
    axis.set_ylabel("HR@10 of mars-t against sasrec, %")
    return figure
