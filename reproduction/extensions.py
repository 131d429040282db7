"""Variants that are not in the paper."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import EXPLAINED
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.results import Result
from reproduction.variants import FULL, Variant, in_words, tables

EXTENSIONS: dict[str, Variant] = {
    "request clock": ("ages measured from the moment of the request", None, {"readout.clock": "request"}),
    "values": ("mapped states are summed up instead of the states", None, {"readout.values": True}),
    "user dropout": (
        "a dropout of 0.2 on the user vector; our default for sparse data that the paper does not have",
        None,
        {"readout.dropout": 0.2},
    ),
    "linear time": ("exponentials of age instead of power laws", None, {"readout.time_scale": "linear"}),
}


def section(found: Sequence[Result], folder: Path) -> Section:
    """What is not in the paper, against its MARS: the request clock, mapped states, linear time; and our dropout."""
    parts: list[str | Table | Picture] = [
        "Variants that the paper does not have, each under its own name, against the recipe itself. On the paper's "
        "clock ages are measured from a user's latest event. On the request clock they are measured from the moment of "
        "the request, in training and test the time of the target: a shop knows it, the other models do not see it. "
        f"{EXPLAINED}",
        in_words(EXTENSIONS),
    ]
    compared = tables(found, folder, {"full": FULL, **EXTENSIONS}, {})
    return Section("extensions", "Extensions", parts + (compared or ["Not run."]))
