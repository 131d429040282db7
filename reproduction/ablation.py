"""What each part of MARS is worth."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import EXPLAINED
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.results import Result
from reproduction.published import ABLATION
from reproduction.variants import FULL, Variant, in_words, tables

ABLATIONS: dict[str, Variant] = {
    "full": FULL,
    "backbone": ("the last state instead of MARS", "last", {}),
    "b1": ("ages counted in events instead of real time", None, {"readout.real_time": False}),
    "b2": ("all users share the rates", None, {"readout.modulation": False}),
    "b3": ("no diversity loss", None, {"readout.diversity": 0.0}),
    "b4": ("no balance loss", None, {"readout.balance": 0.0}),
    "single": ("one head", None, {"readout.heads": 1}),
}
"""The variants of the paper's ablation."""


def section(found: Sequence[Result], folder: Path) -> Section:
    """MARS with its parts taken away, one by one, on both backbones."""
    parts: list[str | Table | Picture] = [
        "What each part of MARS is worth. The paper's figures are those of the full tables in its appendix. The table "
        'in its text has another "full" for mars-t: an HR@10 of 8.91 on beauty, 5.20 on sports, 12.24 on games and '
        "6.40 on yelp; its main comparison has yet another. For mars-t the backbone is sasrec; for mars-m it is a "
        f"Mamba of two layers with the last state as the user vector. {EXPLAINED}",
        in_words(ABLATIONS),
    ]
    return Section("ablation", "Ablation", parts + tables(found, folder, ABLATIONS, ABLATION))
