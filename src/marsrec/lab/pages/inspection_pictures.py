"""Pictures of an inspection: decay of the heads, their spread over users, and example users."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from marsrec.data.moments import spell_age
from marsrec.lab.example_users import Example
from marsrec.lab.inspection import LEVELS, Decay, Spread
from marsrec.lab.plot import COLORS, HATCHES, MARKERS, STYLES, name_points, plot
from marsrec.nn.mars import SIGMA

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAY, YEAR = 24.0, 24 * 365.25
HOURS = {
    1.0: "1 h",
    DAY: "1 day",
    YEAR: "1 year",
    1 / 60: "1 min",
    10 * YEAR: "10 years",
    7 * DAY: "1 week",
    30 * DAY: "1 month",
    1 / 3600: "1 s",
    1 / 6: "10 min",
    6.0: "6 h",
    90 * DAY: "3 months",
    3 * YEAR: "3 years",
    2 * DAY: "2 days",
    1 / 360: "10 s",
    14 * DAY: "2 weeks",
    180 * DAY: "6 months",
}
"""Ticks of an axis of ages, the more welcome first."""
LAST_STATE = "#c8c8c8"
MEDIAN = LEVELS.index(0.5)


def draw_decay(decay: Decay, resolution: float | None = None) -> "Figure":
    """Weight by age in each head, and the mean gate; ages below the data's resolution are hatched."""
    figure, (left, right) = plot(2, width=10.5, height=4.2)
    left.get_gridspec().set_width_ratios([2.4, 1])  # type: ignore[union-attr]
    low, high = (1 / 60, 10 * YEAR) if decay.unit == "hours" else (0.5, 1000.0)
    if decay.unit == "hours" and min(head.half_lives.quantiles[MEDIAN] for head in decay.heads) < low:
        low = 1 / 3600 if resolution is None else min(low, max(resolution, 1 / 3600))
    ages = np.geomspace(low, high, 400)
    marks = {}
    for k, head in enumerate(decay.heads):
        color, life = COLORS[k % 8], head.half_lives.quantiles[MEDIAN]
        slow, middle, fast = (decay.weight(ages, head.rates.quantiles[at]) for at in (0, MEDIAN, -1))
        left.fill_between(ages, slow, fast, color=color, alpha=0.12)
        left.plot(ages, middle, color=color, linestyle=STYLES[k % 8], linewidth=2.2, label=f"head {k + 1}")
        if low < life < high:
            marks[f"head {k + 1}"] = life, 0.5
            left.scatter(life, 0.5, 22, color, marker=MARKERS[k % 8], edgecolor="black", linewidth=0.6, zorder=3)
        right.barh(-k, head.mean_gate, color=color, hatch=HATCHES[k % 8], edgecolor="white")
        right.text(head.mean_gate, -k, f" {head.mean_gate:.2f}", va="center")
    if resolution is not None and decay.unit == "hours" and resolution > low:
        unseen = f"below the data's resolution ({spell_age(resolution, decay.unit)})"
        left.axvspan(low, resolution, facecolor="none", edgecolor="#cccccc", hatch="///", label=unseen, zorder=0)
    _age_axis(left, decay, low, high)
    left.set_ylim(0, 1.04)
    left.set_ylabel("weight relative to a new event")
    left.set_title("What each head remembers", loc="left")
    figure.legend(frameon=False, loc="outside lower center", handlelength=3.5, ncols=8 if len(decay.heads) < 6 else 5)
    labels = [
        f"head {k}\n{spell_age(head.half_lives.quantiles[MEDIAN], decay.unit)}"
        for k, head in enumerate(decay.heads, start=1)
    ]
    right.set_yticks([-k for k in range(len(decay.heads))], labels)
    right.set_xlim(0, 1.25 * max(head.mean_gate for head in decay.heads))
    right.set_xlabel("mean weight in the gate")
    right.set_title("How much it counts", loc="left")
    right.set_axisbelow(True)
    right.grid(visible=False, axis="y")
    name_points(left, marks)
    return figure


def draw_spread(decay: Decay) -> "Figure":
    """What modulation makes of the rates, between its bounds, and the gate, over users."""
    figure, (left, right) = plot(2, width=max(10.5, 1.2 * len(decay.heads)), height=4.4)
    for k, head in enumerate(decay.heads):
        if _differs(head.rates):
            least, *_, most = head.factors(head.rates.edges)
            left.vlines(k, least, most, color=COLORS[k % 8], linestyle=":")
        if _differs(head.gate):
            _draw_histogram(right, k, head.gate)
        _draw_quantiles(left, k, head.factors(head.rates.quantiles))
        _draw_quantiles(right, k, np.array(head.gate.quantiles))
    factors = [head.factors(head.rates.quantiles)[MEDIAN] for head in decay.heads]
    gates = [head.gate.quantiles[MEDIAN] for head in decay.heads]
    for axis, sign, medians in ((left, "× ", factors), (right, "", gates)):
        labels = [f"{k}\n{sign}{median:.2f}" for k, median in enumerate(medians, start=1)]
        axis.set_xticks(range(len(labels)), labels, fontsize=9)
        axis.set_xlim(-0.6, len(labels) - 0.4)
        axis.grid(visible=False, axis="x")
    bounds = {math.exp(-SIGMA): "least", math.exp(SIGMA): "most"} if decay.bounded else {}
    for bound in bounds:
        left.axhline(bound, color="black", linestyle="--", linewidth=1, zorder=1)
    ticks = {0.8: "0.8", 1.0: "1", 1.25: "1.25", **{bound: f"{bound:.2f}, {end}" for bound, end in bounds.items()}}
    left.set(yscale="log", yticks=list(ticks), yticklabels=list(ticks.values()))
    if bounds:
        left.set_ylim(math.exp(-1.12 * SIGMA), math.exp(1.12 * SIGMA))
    left.minorticks_off()
    left.set(xlabel="head, and the median factor", ylabel="factor λ$_k$(u) / λ$_k$ on the rate (no unit)")
    left.set_title("Modulation by the user", loc="left")
    right.set_ylim(0, 1.05 * min(1, max(head.gate.edges[-1] for head in decay.heads)))
    right.set(xlabel="head, and the median weight", ylabel="weight in the gate (of 1)")
    right.set_title("Gate", loc="left")
    return figure


def _differs(spread: Spread) -> bool:
    """Whether users differ; the bins of a single value reach to both sides of it."""
    return sum(count > 0 for count in spread.counts) > 1


def _draw_quantiles(axis: "Axes", k: int, quantiles: NDArray[Any]) -> None:
    """A mark at the median, a thick line from 25 to 75 % of users, a thin one from 5 to 95 %."""
    color, (low, start, middle, end, high) = COLORS[k % 8], quantiles
    axis.vlines(k, low, high, color=color, linewidth=1.2)
    axis.vlines(k, start, end, color=color, linewidth=5)
    axis.plot(k, middle, MARKERS[k % 8], color=color, markersize=9, mec="white")


def _draw_histogram(axis: "Axes", k: int, spread: Spread) -> None:
    counts = np.array(spread.counts)
    width = np.repeat(0.4 * counts / counts.max(), 2)
    axis.fill_betweenx(np.repeat(spread.edges, 2)[1:-1], k - width, k + width, color=COLORS[k % 8], alpha=0.25)


def draw_example(decay: Decay, example: Example) -> "Figure":
    """When events were and how heads weigh them, and what was recommended."""
    heads = len(decay.heads)
    figure, (left, right) = plot(2, width=12, height=1.6 + 0.72 * (heads + 1))
    left.get_gridspec().set_width_ratios([1.5, 1])  # type: ignore[union-attr]
    _draw_timeline(left, decay, example)
    _draw_shares(right, example, heads)
    figure.legend(frameon=False, loc="outside lower center", handlelength=2.5, ncols=9)
    taken = example.following
    figure.suptitle(f"User {example.user}: the next item was {taken.item}, ranked {taken.rank:,g}", fontweight="bold")
    return figure


def _draw_timeline(axis: "Axes", decay: Decay, example: Example) -> None:
    heads = len(decay.heads)
    ages = np.array([event.age for event in example.events])
    positive = ages[ages > 0]
    nearest, farthest = (positive.min(), positive.max()) if len(positive) else (1.0, 1.0)
    now = nearest / 4  # where a logarithmic axis has no place for age 0
    drawn = np.where(ages > 0, ages, now)
    step = max(math.log(farthest / now), 1.0) / 80  # events nearer to each other would cover each other
    rounded, member = np.unique(np.round(np.log(drawn) / step), return_inverse=True)
    places = np.exp(rounded * step)
    weights = np.array([event.weights for event in example.events])  # (events, heads)
    summed = np.stack([np.bincount(member, weights[:, k]) for k in range(heads)])  # (heads, places)
    for k in range(heads):
        color, base = COLORS[k % 8], heads - 1 - k
        tops = base + 0.6 * summed[k] / summed[k].max()
        axis.axhline(base, color="#999999", linewidth=0.8, zorder=1)
        axis.vlines(places, base, tops, color=color, linewidth=2)
        axis.plot(places, tops, MARKERS[k % 8], color=color, markersize=5)
        top = int(summed[k].argmax())
        where = (places[top], tops[top])
        axis.annotate(f"{summed[k, top]:.2f}", where, (0, 5), textcoords="offset points", ha="center", fontsize=9)
    axis.plot(drawn, np.full(len(drawn), -0.75), "|", color="black", markersize=14, markeredgewidth=1.5)
    labels = [
        f"head {k + 1}, gate {example.gate[k]:.2f}\nhalf-life {spell_age(life, decay.unit)}"
        for k, life in enumerate(example.half_lives)
    ]
    axis.set_yticks(
        [heads - 1 - k + 0.3 for k in range(heads)] + [-0.75], [*labels, counted(example).replace(" of ", "\nof ")]
    )
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(-1.1, heads + 0.05)
    low = now / 1.6 if (ages == 0).any() else nearest / 2
    _age_axis(axis, decay, low, 2 * farthest, zero=now if (ages == 0).any() else None)
    axis.invert_xaxis()
    axis.grid(visible=False, axis="y")
    axis.set_title("Weights of the events, each row to its own scale", loc="left")


def _draw_shares(axis: "Axes", example: Example, heads: int) -> None:
    shown = list(example.top)
    if example.following.item not in [scored.item for scored in shown]:
        shown.append(example.following)
    names = ["last state", *(f"head {k + 1}" for k in range(heads))]
    for row, scored in enumerate(shown):
        ends = {True: 0.0, False: 0.0}  # of what was added and of what was taken away
        for index, share in enumerate([scored.last_state, *scored.heads]):
            k = index - 1
            face, hatch = (LAST_STATE, "") if k < 0 else (COLORS[k % 8], HATCHES[k % 8])
            label = names[index] if row == 0 else None
            axis.barh(-row, share, 0.6, left=ends[share >= 0], color=face, hatch=hatch, edgecolor="white", label=label)
            ends[share >= 0] += share
        axis.text(ends[True], -row, f" {scored.score:.2f}", va="center")
    taken = example.following.item
    labels = [f"{scored.item}\nrank {scored.rank:,g}{', taken next' * (scored.item == taken)}" for scored in shown]
    axis.set_yticks([-row for row in range(len(shown))], labels)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.15)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel("score, as a sum of shares")
    axis.set_title("Recommended", loc="left")
    axis.grid(visible=False, axis="y")
    axis.set_axisbelow(True)


def counted(example: Example) -> str:
    """How many events there are to see."""
    shown, length = len(example.events), example.length
    some = f"{length} event{'' if length == 1 else 's'}"
    return some if shown == length else f"the latest {shown} of {some}"


def _age_axis(axis: "Axes", decay: Decay, low: float, high: float, *, zero: float | None = None) -> None:
    """A logarithmic axis of ages with ticks in words, as many as have room; `zero` is where age 0 stands."""
    counts = {float(digit * 10**power): f"{digit * 10**power}" for power in range(6) for digit in (1, 2, 5)}
    ticks = {zero: "now"} if zero is not None else {}
    room = math.log(high / low) / 9
    for age, words in (HOURS if decay.unit == "hours" else counts).items():
        if low <= age <= high and all(abs(math.log(age / other)) > room for other in ticks):
            ticks[age] = words
    axis.set(xscale="log", xticks=list(ticks), xticklabels=list(ticks.values()), xlim=(low, high))
    axis.minorticks_off()
    axis.set_xlabel("age of the event" if decay.unit == "hours" else "age of the event, in events")
