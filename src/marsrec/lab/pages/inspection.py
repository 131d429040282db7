"""An inspection as a page of a report."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from marsrec.data.moments import spell_age
from marsrec.lab.comparison import Contest
from marsrec.lab.example_users import POOL, Example
from marsrec.lab.inspection import LEVELS, Decay, Inspection
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.pages.inspection_pictures import YEAR, counted, draw_decay, draw_example, draw_spread
from marsrec.lab.results import inspection_of
from marsrec.nn.mars import SIGMA

LONGEST = 100 * YEAR
"""Half-lives above are called "over 100 years"."""
LISTED = 10
"""Events of an example user in the table."""


def sections(contests: Sequence[Contest], folder: Path) -> list[Section]:
    """A page for each model that was inspected, by its first seed."""
    results = [results[0] for contest in contests for results in contest.models.values()]
    inspected = {result.name: inspection_of(result, folder) for result in results}
    return [section(f"inspection-{name}", seen) for name, seen in inspected.items() if seen is not None]


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
        parts += _decay_parts(name, inspected.decay, inspected)
    if inspected.decay is not None and inspected.examples:
        parts += _example_parts(name, inspected.decay, inspected.examples)
    lacking = f"{inspected.model} has neither the transformer encoder nor a readout with time scales"
    return Section(name, title, parts or [f"{lacking}: there is nothing to show."])


def _attention_parts(inspected: Inspection) -> list[str | Table | Picture]:
    rows = [[f"{layer}", f"{found.mean:.3f}", f"{found.std:.3f}"] for layer, found in enumerate(inspected.attention, 1)]
    caption = (
        f"Entropy of the attention weights over the logarithm of the number of visible events, in "
        f"{inspected.histories:,} test histories: over all positions with at least two visible events, averaged over "
        "attention heads. 1 is an even look at all of them, 0 a look at one."
    )
    return ["## Attention", Table(["layer", "mean entropy", "standard deviation"], rows, caption)]


# -------------------------------------------------------------------- decay


def _decay_parts(name: str, decay: Decay, inspected: Inspection) -> list[str | Table | Picture]:
    low, middle, high = 0, LEVELS.index(0.5), -1
    resolution = inspected.resolution if decay.unit == "hours" else None

    def spelled(life: float) -> str:
        return spell_age(life, decay.unit) + (" †" if resolution is not None and life < resolution else "")

    rows = []
    for k, head in enumerate(decay.heads, 1):
        lives, rates, gate = head.half_lives.quantiles, head.rates.quantiles, head.gate.quantiles
        rows.append(
            [
                str(k),
                spelled(head.base_half_life),
                spelled(lives[middle]),
                _range(spelled(lives[low]), spelled(lives[high])),
                f"{rates[middle]:.3g}",
                f"× {head.factors(rates)[middle]:.2f}",
                f"{head.mean_gate:.2f}",
                _range(f"{gate[low]:.2f}", f"{gate[high]:.2f}"),
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
        f"Half-lives of the heads over {inspected.histories:,} test histories; the exponent λ_k(u) / τ_k of the median "
        "user, and what it is of the base; the mean weight of the head in the gate."
    )
    if decay.modulated and decay.bounded:
        caption += f" Modulation can multiply a base exponent by {math.exp(-SIGMA):.2f} to {math.exp(SIGMA):.2f}."
    if resolution is not None and any("†" in cell for row in rows for cell in row):
        caption += f" † {_below(resolution, decay)}"
    clock = "the latest event" if decay.clock == "last-event" else "the request"
    measured = f"An event's age is counted from {clock}" + ("." if decay.unit == "hours" else ", in events.")
    apart = f"Two heads' weights differ by a Jensen-Shannon divergence of {decay.divergence:.3f} on average (at most "
    apart += f"{math.log(2):.3f}, where they look at different events)."
    even = [str(k) for k, head in enumerate(decay.heads, 1) if head.half_lives.quantiles[middle] > LONGEST]
    if even and decay.unit == "hours":
        apart += f" A half-life over 100 years (head {', '.join(even)}) is nearly a plain average of the history."
    bounds = ", between its bounds (dashed); on a bound modulation is saturated" if decay.bounded else ""
    return [
        "## Rates and gate",
        f"{measured} {apart}{_removed(decay)}",
        Table(columns, rows, caption),
        Picture(
            f"{name}-decay",
            "Weight of an event by its age in each head, relative to a new event. Lines are the median user, bands 5 "
            "to 95 % of users, marks the half-lives. Right: the mean weight of each head in the gate.",
            lambda: draw_decay(decay, resolution),
        ),
        Picture(
            f"{name}-spread",
            f"Modulation and gate over users. Left: the factor λ_k(u) / λ_k on the rate of each head{bounds}. Marks "
            "are medians, thick lines 25 to 75 %, thin lines 5 to 95 % and dotted lines all of the users. Right: "
            "shapes are histograms.",
            lambda: draw_spread(decay),
        ),
    ]


def _below(resolution: float, decay: Decay) -> str:
    """What it means that half-lives are shorter than the shortest time between two events."""
    gap, middle = spell_age(resolution, decay.unit), LEVELS.index(0.5)
    text = (
        f"Below the data's resolution ({gap}): two events of a user are at the same time or at least so far apart, so "
        "no event shows such a half-life, and two of them need not be two time scales."
    )
    short = {k: h for k, h in enumerate(decay.heads, 1) if h.half_lives.quantiles[middle] < resolution}
    if not short:
        return text
    left = max(decay.weight(np.array(resolution), head.rates.quantiles[middle]) for head in short.values())
    heads = ", ".join(map(str, short))
    return f"{text} In head {heads} an event of that age weighs at most {left:.2g} of a new one to the median user."


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


# ------------------------------------------------------------ example users


def _removed(decay: Decay) -> str:
    if (removed := decay.removed) is None:
        return ""
    before, after = (
        f"{100 * found['HR@10']:.2f} and {100 * found['NDCG@10']:.2f}" for found in (removed.complete, removed.rest)
    )
    median = removed.cosine.quantiles[LEVELS.index(0.5)]
    return (
        f" Without what past events add to the user vector, test HR@10 and NDCG@10 go from {before} to {after}; the "
        f"median cosine between that and the rest of the vector is {median:.2f}."
    )


def _example_parts(name: str, decay: Decay, examples: list[Example]) -> list[str | Table | Picture]:
    rule = (
        f"Chosen by rule, each among up to {POOL:,} test histories of about the length that is named: those whose next "
        "item has the best rank, or the rank nearest to their median; of these, the user with the most different times "
        "of events. The best ones flatter the model. Nothing is masked: items of the history may be recommended."
    )
    parts: list[str | Table | Picture] = ["## Example users", rule]
    for number, example in enumerate(examples, 1):
        caption = (
            f"User {example.user}: {example.kind}. Left: {counted(example)} by age, and the weight of events of about "
            "the same age in each head; the largest is written. Right: scores of the recommended items as sums of "
            f"shares of the last state and of the heads. The next item was {example.following.item}, at rank "
            f"{example.following.rank:,g}."
        )
        picture = Picture(f"{name}-user-{number}", caption, lambda example=example: draw_example(decay, example))  # type: ignore[misc]
        parts += [f"## User {example.user}: {example.kind}", picture, _events_table(decay, example)]
    return parts


def _events_table(decay: Decay, example: Example) -> Table:
    heads = [f"head {k + 1}" for k in range(len(decay.heads))]
    rows = [
        [
            event.item,
            spell_age(event.age, decay.unit),
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
