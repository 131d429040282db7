"""The backbone rule put to the test: mars-t against mars-m on data of every density."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from marsrec.data.source import EMBEDDED
from marsrec.lab.comparison import EXPLAINED, Cell, Change, density, difference, figures, per_user, same_seeds, told
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.plot import COLORS, MARKERS, STYLES, plot
from marsrec.lab.results import Result
from marsrec.models import DENSE_FROM, backbone
from marsrec.paper import paper_options
from reproduction.comparable import alike, as_published, datasets, find, origin, published_name, trained
from reproduction.published import MAIN, Figures, against, in_points, shown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAIR = ("mars-t", "mars-m")
SHOWN = ("HR@10", "NDCG@10")

FIXED = paper_options("ml-1m", "mars-t")
"""Settings of all generated data of another density than the default: settings that follow the density would change
at the very threshold that is tested. They are the paper's for dense data."""


@dataclass(frozen=True, order=True)
class Point:
    """What mars-m gains over mars-t at some density, in shares of mars-t's NDCG@10."""

    length: float
    """Average number of training events of a user."""
    gain: float
    low: float
    """Lower end of the 95 % interval over users."""
    high: float

    @property
    def significant(self) -> bool:
        """Whether the difference is statistically significant."""
        return self.low * self.high > 0


def section(found: Sequence[Result], folder: Path) -> Section:
    """MARS-T against MARS-M as the average length varies."""
    rows: list[list[Cell]] = []
    lines: dict[tuple[str, str], list[Point]] = defaultdict(list)
    right = 0
    for data in sorted(datasets(found), key=lambda data: _average(found, data)):
        results = alike(found, data)
        generated = origin(data) == EMBEDDED != published_name(data)
        pair = [find(results, name, options=FIXED if generated else {}) for name in PAIR]
        if not any(pair):
            continue
        average = density(results[0])
        theirs = MAIN.get(published_name(data)) if as_published(results) else None
        row, point = _row(data, average, same_seeds(*pair), theirs, folder)
        rows.append(row)
        if point:
            order = data.removeprefix(published_name(data))  # another order of equal times is other data
            lines[("hawkes, fixed settings" if generated else origin(data) + order, trained(results))].append(point)
            right += point.significant and backbone(average) == PAIR[point.gain > 0]
    known = {published_name(str(row[0])) for row in rows}
    rows += [_row(data, None, ([], []), theirs, folder)[0] for data, theirs in MAIN.items() if data not in known]
    points = [point for of_line in lines.values() for point in of_line]
    judged = _judged(right, sum(point.significant for point in points), len(points))
    columns = ["data", "L̄", "mars-t", "paper (against it)", "mars-m", "paper (against it)"]
    columns += ["mars-m against mars-t", "paper (against it)", "rule takes", "better here"]
    parts: list[str | Table | Picture] = [
        f"The rule takes mars-t below an average of {DENSE_FROM:.0f} training events per user, and mars-m from there "
        "on. Data of several densities are made by keeping only the latest events of each user (the test targets and "
        "the settings stay the same) and by the hawkes generator. What it generates at another density than its "
        "default has the settings that the paper takes for ml-1m, whatever the density, so that nothing but the data "
        f"changes at {DENSE_FROM:.0f}.",
        f"{judged} {_crossed(lines)}",
        Table(
            columns,
            told(rows),
            f"L̄: training events per user. mars-t and mars-m: {' / '.join(SHOWN)}; one against the other: NDCG@10. "
            + EXPLAINED,
        ),
    ]
    if any(len(of_line) > 1 for of_line in lines.values()):
        caption = (
            "NDCG@10 of mars-m relative to mars-t against the average number of training events per user, with 95 % "
            "intervals over users; the vertical line is where the rule changes over."
        )
        parts.append(Picture("backbone-rule", caption, partial(_draw, _named(lines))))
    return Section("rule", "The backbone rule", parts)


def crossings(points: Sequence[Point]) -> list[str]:
    """Where the better one changes, between points that are statistically significant.

    Between neighbours the place is read off a straight line on a logarithmic axis; where other points lie between, only
    the two ends are known.

    Examples
    --------
    >>> below, above = Point(10, -0.1, -0.2, -0.05), Point(40, 0.1, 0.05, 0.2)
    >>> crossings([below, above]), crossings([below, Point(20, 0.1, -0.1, 0.2), above])
    (['at about 20 events'], ['between 10 and 40 events'])
    """
    ordered = sorted(points)
    crossed = []
    for (left, below), (right, above) in pairwise((place, one) for place, one in enumerate(ordered) if one.significant):
        if below.gain * above.gain > 0:
            continue
        if right == left + 1:
            share = below.gain / (below.gain - above.gain)
            length = math.exp((1 - share) * math.log(below.length) + share * math.log(above.length))
            crossed.append(f"at about {length:.0f} events")
        else:
            crossed.append(f"between {below.length:.0f} and {above.length:.0f} events")
    return crossed


def _row(
    data: str,
    average: float | None,
    pair: Sequence[Sequence[Result]],
    theirs: Mapping[str, Figures] | None,
    folder: Path,
) -> tuple[list[Cell], Point | None]:
    """A row of the table, and its point in the figure if both were run."""
    cells: list[Cell] = []
    for name, run in zip(PAIR, pair, strict=True):
        ours = [mean(figures(run, metric)) for metric in SHOWN] if run else []
        published = theirs[name][: len(SHOWN)] if theirs else None
        cells += [
            shown(ours) if run else "not run",
            _beside(shown(published), against(ours, published)),
        ]
    published_gain = theirs["mars-m"][1] / theirs["mars-t"][1] - 1 if theirs else None
    beside = "none" if published_gain is None else f"{published_gain:+.1%}"
    start = [data, "" if average is None else f"{average:.1f}", *cells]
    taken = "" if average is None else backbone(average)
    if not all(pair):
        return [*start, "not run", beside, taken, ""], None
    differs = difference(pair[1], pair[0], folder, "NDCG@10")
    base = float(per_user(pair[0], folder, "NDCG@10").mean())
    point = Point(average or 0.0, differs.mean / base, differs.low / base, differs.high / base)
    better = PAIR[differs.mean > 0] if point.significant else "not significant"
    compared: list[Cell] = [Change(point.gain, differs), _beside(beside, in_points(point.gain, published_gain))]
    return [*start, *compared, taken, better], point


def _judged(right: int, significant: int, run: int) -> str:
    """How often the rule takes the better model.

    Examples
    --------
    >>> print(_judged(1, 1, 2))
    Comparisons of mars-m and mars-t: 2. The difference in NDCG@10 is statistically significant (its 95 % interval is
    without 0) in 1, and the rule takes the better model there.
    """
    if not run:
        return "mars-t and mars-m on the same data: not run."
    taken = "there" if right == significant else f"in {right} of them"
    return (
        f"Comparisons of mars-m and mars-t: {run}. The difference in NDCG@10 is statistically significant (its 95 % "
        f"interval is without 0) in {significant or 'none'}"
        + (f", and the rule takes the better model {taken}." if significant else ".")
    )


def _beside(theirs: str, against: str) -> str:
    return f"{theirs} ({against})" if against else theirs


def _average(found: Sequence[Result], data: str) -> float:
    return next(density(result) for result in found if result.data == data)


def _named(lines: Mapping[tuple[str, str], list[Point]]) -> dict[str, list[Point]]:
    """Lines by what they are called: with their training where there are several of the same data."""
    names = [name for name, _ in lines]
    return {name if names.count(name) == 1 else f"{name} ({way})": points for (name, way), points in lines.items()}


def _crossed(lines: Mapping[tuple[str, str], list[Point]]) -> str:
    crossed = [f"{name} {place}" for name, points in _named(lines).items() for place in crossings(points)]
    if crossed:
        return f"The two cross: {'; '.join(crossed)}."
    if any(len(points) > 1 for points in lines.values()):
        return "No crossing is statistically significant here."
    return "Data of several densities: not run."


def _draw(lines: Mapping[str, Sequence[Point]]) -> "Figure":
    figure, (axis,) = plot(width=6.4)
    for index, (name, points) in enumerate(lines.items()):
        ordered = sorted(points)
        gains = [100 * point.gain for point in ordered]
        bars = [
            [100 * (p.gain - min(p.low, p.gain)) for p in ordered],
            [100 * (max(p.high, p.gain) - p.gain) for p in ordered],
        ]
        look: dict[str, Any] = {
            "color": COLORS[index % len(COLORS)],
            "linestyle": STYLES[index % len(STYLES)],
            "marker": MARKERS[index % len(MARKERS)],
        }
        axis.errorbar([point.length for point in ordered], gains, yerr=bars, elinewidth=0.8, label=name, **look)
    axis.axhline(0, color="#555555", linewidth=0.8)
    axis.axvline(DENSE_FROM, color="#555555", linewidth=0.8, linestyle=":")
    axis.set_xscale("log")
    ticks = [5, 10, 20, 50, 100, 200]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("average number of training events per user")
    axis.set_ylabel("NDCG@10 of mars-m against mars-t, %")
    axis.legend(frameon=False)
    return figure
