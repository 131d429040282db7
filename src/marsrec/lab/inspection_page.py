"""An inspection as a page of a report: tables, and pictures of decay, of users' spread and of example users."""

import math
from typing import TYPE_CHECKING

import numpy as np

from marsrec.data.moments import spell_duration
from marsrec.lab.inspection import LEVELS, POOL, Decay, Example, Inspection, Spread
from marsrec.lab.page import COLORS, HATCHES, MARKERS, STYLES, Picture, Section, Table, plot

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

DAY, YEAR = 24.0, 24 * 365.25
HOURS = {
    1 / 3600: "1 s",
    1 / 360: "10 s",
    1 / 60: "1 min",
    1 / 6: "10 min",
    1.0: "1 h",
    DAY: "1 day",
    7 * DAY: "1 week",
    30 * DAY: "1 month",
    YEAR: "1 year",
    10 * YEAR: "10 years",
    100 * YEAR: "100 years",
}
LONGEST = 100 * YEAR
"""Half-lives above are drawn here and called "over 100 years"."""
LISTED = 10
"""Events of an example user in the table."""


def section(name: str, inspected: Inspection) -> Section:
    """The page of an inspection.

    Parameters
    ----------
    name : str
        Of the page's file and, with an ending, of its figures.
    inspected : Inspection
        What `inspect` found.
    """
    title = f"Inside {inspected.model}" + (f" on {inspected.data}" if inspected.data else "")
    parts: list[str | Table | Picture] = []
    if inspected.attention:
        parts += _attention_parts(inspected)
    if inspected.decay is not None:
        parts += _decay_parts(name, inspected.decay, inspected.histories)
    if inspected.decay is not None and inspected.examples:
        parts += _example_parts(name, inspected.decay, inspected.examples)
    nothing = f"{inspected.model} has neither the transformer encoder nor the MARS readout: there is nothing to show."
    return Section(name, title, parts or [nothing])


def _attention_parts(inspected: Inspection) -> list[str | Table | Picture]:
    rows = [[f"{layer}", f"{found.mean:.3f}", f"{found.std:.3f}"] for layer, found in enumerate(inspected.attention, 1)]
    caption = (
        f"Entropy of the attention weights over the logarithm of the number of visible events, in "
        f"{inspected.histories:,} test histories: over all positions with at least two visible events, averaged over "
        "attention heads. 1 is an even look at all of them, 0 a look at one."
    )
    return ["## Attention", Table(["layer", "mean entropy", "standard deviation"], rows, caption)]


# -------------------------------------------------------------------- decay


def _decay_parts(name: str, decay: Decay, histories: int) -> list[str | Table | Picture]:
    low, middle, high = 0, LEVELS.index(0.5), -1
    rows = []
    for k, head in enumerate(decay.heads, 1):
        lives, rates, gate = head.half_lives.quantiles, head.rates.quantiles, head.gate.quantiles
        rows.append(
            [
                str(k),
                _spell(decay, head.base_half_life),
                _spell(decay, lives[middle]),
                f"{_spell(decay, lives[low])} to {_spell(decay, lives[high])}",
                f"{rates[middle]:.3g}",
                f"× {rates[middle] / head.base_rate:.2f}",
                f"{head.mean_gate:.2f}",
                f"{gate[low]:.2f} to {gate[high]:.2f}",
            ]
        )
    columns = [
        "head",
        "base half-life",
        "median user",
        "5 to 95 % of users",
        "exponent",
        "of base",
        "gate",
        "5 to 95 %",
    ]
    caption = (
        f"Half-lives of the heads over {histories:,} test histories; the exponent λ_k(u) / τ_k of the median user, and "
        "what it is of the base; the mean weight of the head in the gate."
    )
    clock = "the latest event" if decay.clock == "last-event" else "the request"
    measured = f"An event's age is counted from {clock}" + ("." if decay.unit == "hours" else ", in events.")
    apart = f"Two heads' weights differ by a Jensen-Shannon divergence of {decay.divergence:.3f} on average (at most "
    apart += f"{math.log(2):.3f}, where they look at different events)."
    even = [str(k) for k, head in enumerate(decay.heads, 1) if head.half_lives.quantiles[middle] > LONGEST]
    if even and decay.unit == "hours":
        apart += f" A half-life over 100 years (head {', '.join(even)}) is a plain average of the history."
    return [
        "## Rates and gate",
        f"{measured} {apart}",
        Table(columns, rows, caption),
        Picture(
            f"{name}-decay",
            "Weight of an event by its age in each head, relative to a new event. Lines are the median user, bands 5 to "
            "95 % of users, marks the half-lives. Right: the mean weight of each head in the gate.",
            lambda: draw_decay(decay),
        ),
        Picture(
            f"{name}-spread",
            "Half-lives and gate over users. Shapes are histograms; marks are medians, thick lines 25 to 75 % and thin "
            "lines 5 to 95 % of users.",
            lambda: draw_spread(decay),
        ),
    ]


def draw_decay(decay: Decay) -> "Figure":
    """Weight by age in each head, and the mean gate."""
    figure, (left, right) = plot(2, width=10.5, height=4.2)
    left.get_gridspec().set_width_ratios([2.4, 1])  # type: ignore[union-attr]
    low, high = (1 / 60, 10 * YEAR) if decay.unit == "hours" else (0.5, 1000.0)
    ages = np.geomspace(low, high, 400)
    for k, head in enumerate(decay.heads):
        style = _style(k)
        slow, middle, fast = (head.rates.quantiles[at] for at in (0, LEVELS.index(0.5), -1))
        left.fill_between(ages, decay.weight(ages, slow), decay.weight(ages, fast), color=style["color"], alpha=0.12)
        left.plot(ages, decay.weight(ages, middle), **style, linewidth=2.2, label=f"head {k + 1}")
        life = head.half_lives.quantiles[LEVELS.index(0.5)]
        if low < life < high:
            left.plot(life, 0.5, MARKERS[k % len(MARKERS)], color=style["color"], markersize=8, markeredgecolor="white")
        right.barh(-k, head.mean_gate, color=style["color"], hatch=HATCHES[k % len(HATCHES)], edgecolor="white")
        right.text(head.mean_gate, -k, f" {head.mean_gate:.2f}", va="center")
    _age_axis(left, decay, low, high)
    left.set_ylim(0, 1.04)
    left.set_ylabel("weight relative to a new event")
    left.set_title("What each head remembers", loc="left")
    left.legend(frameon=False, loc="lower left", handlelength=3.5)
    right.set_yticks([-k for k in range(len(decay.heads))], _head_labels(decay))
    right.set_xlim(0, 1.25 * max(head.mean_gate for head in decay.heads))
    right.set_xlabel("mean weight in the gate")
    right.set_title("How much it counts", loc="left")
    right.grid(visible=False, axis="y")
    return figure


def draw_spread(decay: Decay) -> "Figure":
    """Half-lives and gate over users."""
    figure, (left, right) = plot(2, width=10.5, height=4.2)
    for k, head in enumerate(decay.heads):
        _violin(left, k, head.half_lives)
        _violin(right, k, head.gate)
    lives = [life for head in decay.heads for life in head.half_lives.quantiles]
    low, high = max(min(lives), 1 / 3600) / 3, min(max(lives), LONGEST) * 3
    _age_axis(left, decay, low, high, vertical=True)
    left.set_ylabel("half-life" if decay.unit == "hours" else "half-life in events")
    left.set_title("Half-lives", loc="left")
    right.set_ylim(0, 1)
    right.set_ylabel("weight in the gate")
    right.set_title("Gate", loc="left")
    for axis in (left, right):
        axis.set_xticks(range(len(decay.heads)), [f"head {k + 1}" for k in range(len(decay.heads))])
        axis.set_xlim(-0.6, len(decay.heads) - 0.4)
        axis.grid(visible=False, axis="x")
    return figure


def _violin(axis: "Axes", k: int, spread: Spread) -> None:
    color, x = COLORS[k % len(COLORS)], float(k)
    edges, counts = np.minimum(spread.edges, LONGEST), np.array(spread.counts)
    low, start, middle, end, high = np.minimum(spread.quantiles, LONGEST)
    if low < high:  # else all users are alike
        width = 0.4 * counts / counts.max()
        axis.fill_betweenx(
            np.repeat(edges, 2)[1:-1], np.repeat(x - width, 2), np.repeat(x + width, 2), color=color, alpha=0.25
        )
    axis.vlines(x, low, high, color=color, linewidth=1.2)
    axis.vlines(x, start, end, color=color, linewidth=5)
    axis.plot(x, middle, MARKERS[k % len(MARKERS)], color=color, markersize=9, markeredgecolor="white")


# ------------------------------------------------------------ example users


def _example_parts(name: str, decay: Decay, examples: list[Example]) -> list[str | Table | Picture]:
    rule = (
        f"Chosen by rule among up to {POOL:,} test histories of about that length: hits are those whose next item has "
        "the best rank, the other one is the nearest to the median rank; of these, the user with the most different "
        "times of events. Nothing is masked: items of the history may be recommended."
    )
    parts: list[str | Table | Picture] = ["## Example users", rule]
    for number, example in enumerate(examples, 1):
        caption = (
            f"User {example.user}: {example.kind}. Left: {_plural(example.length, 'event')} by age, and the weight of "
            "events of the same age in each head. Right: scores of the recommended items as sums of shares of the last "
            f"state and of the heads. The next item was {example.following.item}, at rank {example.following.rank:g}."
        )
        picture = Picture(f"{name}-user-{number}", caption, lambda example=example: draw_example(decay, example))  # type: ignore[misc]
        parts += [f"## User {example.user}: {example.kind}", picture, _events_table(decay, example)]
    return parts


def _events_table(decay: Decay, example: Example) -> Table:
    heads = [f"head {k + 1}" for k in range(len(decay.heads))]
    rows = [
        [
            event.item,
            _spell(decay, event.age),
            *(f"{weight:.3f}" for weight in event.weights),
            "" if event.share is None else f"{event.share:+.3f}",
        ]
        for event in example.events[: -LISTED - 1 : -1]
    ]
    first = example.top[0]
    shown = f"The latest {len(rows)} of {example.length} events" if example.length > len(rows) else "The events"
    caption = f"{shown}, their weight in each head, and their share in the score {first.score:.3f} of item {first.item}"
    caption += f", of which the last state's is {first.last_state:.3f}." if first.heads else "."
    return Table(["item", "age", *heads, f"share for {first.item}"], rows, caption)


def draw_example(decay: Decay, example: Example) -> "Figure":
    """When events were and how heads weigh them, and what was recommended."""
    heads = len(decay.heads)
    figure, (left, right) = plot(2, width=12, height=1.6 + 0.72 * (heads + 1))
    left.get_gridspec().set_width_ratios([1.5, 1])  # type: ignore[union-attr]
    _draw_timeline(left, decay, example)
    _draw_shares(right, example, heads)
    taken = example.following
    figure.suptitle(f"User {example.user}: the next item was {taken.item}, ranked {taken.rank:g}", fontweight="bold")
    return figure


def _draw_timeline(axis: "Axes", decay: Decay, example: Example) -> None:
    heads = len(decay.heads)
    ages = np.array([event.age for event in example.events])
    positive = ages[ages > 0]
    nearest, farthest = (positive.min(), positive.max()) if len(positive) else (1.0, 1.0)
    now = nearest / 4  # where a logarithmic axis has no place for age 0
    drawn = np.where(ages > 0, ages, now)
    places, member = np.unique(np.round(np.log10(drawn), 2), return_inverse=True)
    places = 10**places
    weights = np.array([event.weights for event in example.events])  # (events, heads)
    summed = np.stack([np.bincount(member, weights[:, k]) for k in range(heads)])  # (heads, places)
    for k in range(heads):
        color, base = COLORS[k % len(COLORS)], heads - 1 - k
        tops = base + 0.75 * summed[k]
        axis.axhline(base, color="#999999", linewidth=0.8, zorder=1)
        axis.vlines(places, base, tops, color=color, linewidth=2)
        axis.plot(places, tops, MARKERS[k % len(MARKERS)], color=color, markersize=5)
        top = int(summed[k].argmax())
        axis.annotate(
            f"{summed[k, top]:.2f}",
            (places[top], tops[top]),
            (0, 5),
            textcoords="offset points",
            ha="center",
            fontsize=9,
        )
    axis.plot(drawn, np.full(len(drawn), -0.75), "|", color="black", markersize=14, markeredgewidth=1.5)
    labels = [
        f"head {k + 1}, gate {example.gate[k]:.2f}\n{_spell(decay, life)}" for k, life in enumerate(example.half_lives)
    ]
    axis.set_yticks([heads - 1 - k + 0.3 for k in range(heads)] + [-0.75], [*labels, _plural(example.length, "event")])
    axis.tick_params(axis="y", length=0)
    axis.set_ylim(-1.1, heads + 0.05)
    low = now / 1.6 if (ages == 0).any() else nearest / 2
    _age_axis(axis, decay, low, 2 * farthest, zero=now if (ages == 0).any() else None)
    axis.invert_xaxis()
    axis.grid(visible=False, axis="y")
    axis.set_title("Weights of the events", loc="left")


def _draw_shares(axis: "Axes", example: Example, heads: int) -> None:
    shown = list(example.top)
    if example.following.item not in [scored.item for scored in shown]:
        shown.append(example.following)
    names = ["last state", *(f"head {k + 1}" for k in range(heads))]
    for row, scored in enumerate(shown):
        ends = {True: 0.0, False: 0.0}  # of what was added and of what was taken away
        for index, share in enumerate([scored.last_state, *scored.heads]):
            k = index - 1
            face, hatch = ("white", "") if k < 0 else (COLORS[k % len(COLORS)], HATCHES[k % len(HATCHES)])
            axis.barh(
                -row,
                share,
                left=ends[share >= 0],
                color=face,
                hatch=hatch,
                edgecolor="black" if k < 0 else "white",
                height=0.6,
                label=names[index] if row == 0 else None,
            )
            ends[share >= 0] += share
        axis.text(ends[True], -row, f" {scored.score:.2f}", va="center")
    labels = [
        f"{scored.rank:g}. {scored.item}" + ("\n(taken next)" if scored.item == example.following.item else "")
        for scored in shown
    ]
    axis.set_yticks([-row for row in range(len(shown))], labels)
    axis.tick_params(axis="y", length=0)
    axis.margins(x=0.15)
    axis.axvline(0, color="black", linewidth=0.8)
    axis.set_xlabel("score, as a sum of shares")
    axis.set_title("Recommended", loc="left")
    axis.grid(visible=False, axis="y")
    axis.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.4, -0.2), ncols=3, handlelength=2.5)


# ---------------------------------------------------------------- in common


def _style(k: int) -> dict[str, object]:
    return {"color": COLORS[k % len(COLORS)], "linestyle": STYLES[k % len(STYLES)]}


def _head_labels(decay: Decay) -> list[str]:
    middle = LEVELS.index(0.5)
    return [f"head {k}\n{_spell(decay, head.half_lives.quantiles[middle])}" for k, head in enumerate(decay.heads, 1)]


def _spell(decay: Decay, age: float) -> str:
    """An age or a half-life in words."""
    return spell_duration(3600 * age) if decay.unit == "hours" else _plural(float(f"{age:.2g}"), "event")


def _plural(count: float, name: str) -> str:
    return f"{count:g} {name}{'' if count == 1 else 's'}"


def _age_axis(
    axis: "Axes", decay: Decay, low: float, high: float, *, zero: float | None = None, vertical: bool = False
) -> None:
    """A logarithmic axis of ages with ticks in words, as many as have room; `zero` is where age 0 stands."""
    counts = {float(digit * 10**power): f"{digit * 10**power}" for power in range(6) for digit in (1, 2, 5)}
    ticks = {zero: "now"} if zero is not None else {}
    room = math.log(high / low) / 8
    for age, words in (HOURS if decay.unit == "hours" else counts).items():
        if low < age < high and all(abs(math.log(age / other)) > room for other in ticks):
            ticks[age] = words
    which = "y" if vertical else "x"
    axis.set(**{f"{which}scale": "log", f"{which}lim": (low, high)})  # type: ignore[arg-type]
    (axis.set_yticks if vertical else axis.set_xticks)(list(ticks), list(ticks.values()))
    axis.minorticks_off()
    if not vertical:
        axis.set_xlabel("age of the event" if decay.unit == "hours" else "age of the event, in events")
