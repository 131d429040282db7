"""An inspection as a page of a report."""

import math

from marsrec.data.moments import spell_age
from marsrec.lab.inspection import LEVELS, POOL, Decay, Example, Inspection
from marsrec.lab.inspection_pictures import LONGEST, counted, draw_decay, draw_example, draw_spread
from marsrec.lab.page import Picture, Section, Table
from marsrec.nn.mars import SIGMA

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
                spell_age(head.base_half_life, decay.unit),
                spell_age(lives[middle], decay.unit),
                _range(spell_age(lives[low], decay.unit), spell_age(lives[high], decay.unit)),
                f"{rates[middle]:.3g}",
                f"× {rates[middle] / head.base_rate:.2f}",
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
        f"Half-lives of the heads over {histories:,} test histories; the exponent λ_k(u) / τ_k of the median user, and "
        "what it is of the base; the mean weight of the head in the gate. Modulation can multiply a base exponent by "
        f"{math.exp(-SIGMA):.2f} to {math.exp(SIGMA):.2f}."
    )
    clock = "the latest event" if decay.clock == "last-event" else "the request"
    measured = f"An event's age is counted from {clock}" + ("." if decay.unit == "hours" else ", in events.")
    apart = f"Two heads' weights differ by a Jensen-Shannon divergence of {decay.divergence:.3f} on average (at most "
    apart += f"{math.log(2):.3f}, where they look at different events)."
    even = [str(k) for k, head in enumerate(decay.heads, 1) if head.half_lives.quantiles[middle] > LONGEST]
    if even and decay.unit == "hours":
        apart += f" A half-life over 100 years (head {', '.join(even)}) is nearly a plain average of the history."
    return [
        "## Rates and gate",
        f"{measured} {apart}",
        Table(columns, rows, caption),
        Picture(
            f"{name}-decay",
            "Weight of an event by its age in each head, relative to a new event. Lines are the median user, bands 5 "
            "to 95 % of users, marks the half-lives. Right: the mean weight of each head in the gate.",
            lambda: draw_decay(decay),
        ),
        Picture(
            f"{name}-spread",
            "Half-lives and gate over users. Shapes are histograms; marks are medians, thick lines 25 to 75 % and thin "
            "lines 5 to 95 % of users.",
            lambda: draw_spread(decay),
        ),
    ]


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"


# ------------------------------------------------------------ example users


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
