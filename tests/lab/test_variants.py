"""Variants are told by their settings, and compared with the full model."""

from typing import Any

import pytest
from tests.lab.made import result

from marsrec.lab import paper
from marsrec.lab.page import Picture, Table
from marsrec.lab.results import Result
from marsrec.lab.variants import ABLATIONS, ablation, extensions, sensitivity


def tables(section: Any) -> list[Table]:
    return [part for part in section.parts if isinstance(part, Table)]


def variant(name: str, hits: float, recipe: str = "mars-t", **given: Any) -> Result:
    _, readout, options = ABLATIONS[name]
    return result(recipe, hits, readout=readout, options=options, **given)


def test_each_ablation_is_found_and_compared_with_full() -> None:
    found = [variant(name, 0.08 + index / 1000) for index, name in enumerate(ABLATIONS) if name != "b4"]
    (table,) = tables(ablation(found))
    rows = {row[0].split(":")[0]: row for row in table.rows}
    assert list(rows) == list(ABLATIONS)
    assert rows["full"][1] == "8.00"
    assert rows["backbone"][1:5] == ["8.10", "4.05", "2.02", "+1.2%"]
    assert rows["b4"][1] == "not run"
    assert rows["b1"][5] == "8.69 / 4.39 / 3.07"


def test_the_backbone_of_mars_m_is_a_mamba_of_two_layers() -> None:
    found = [variant("full", 0.08, "mars-m"), variant("backbone", 0.07, "mars-m"), result("mamba4rec", 0.05)]
    (table,) = tables(ablation(found))
    assert [row[1] for row in table.rows[:2]] == ["8.00", "7.00"]


def test_without_variants_there_is_no_table() -> None:
    assert ablation([result("mars-t"), result("sasrec")]).parts[-1] == "Not run."
    assert extensions([result("mars-t")]).parts[-1] == "Not run."


def test_extensions_stand_under_their_own_names() -> None:
    found = [result("mars-t", 0.08), result("mars-t", 0.09, options={"readout.clock": "request"})]
    section = extensions([*found, result("mars-t", 0.06, options={"readout.values": True})])
    rows = {row[0].split(":")[0]: row for row in tables(section)[0].rows}
    assert rows["request clock"][1] == "9.00"
    assert rows["request clock"][4] == "+12.5%"
    assert rows["values"][4] == "-25.0%"
    assert rows["linear time"][1] == "not run"


def test_sweeps_stand_beside_the_papers_and_are_drawn() -> None:
    found = [result("mars-t", 0.08 + heads / 1000, options={"readout.heads": heads}) for heads in (1, 2, 4)]
    section = sensitivity(found)
    (table,) = tables(section)
    assert [(row[0], row[1], row[4]) for row in table.rows] == [
        ("1", "8.10", "8.69"),
        ("2", "8.20", "8.96"),
        ("4", "8.40", "9.01"),
    ]
    (picture,) = [part for part in section.parts if isinstance(part, Picture)]
    here, theirs = picture.draw().axes[0].lines
    assert list(here.get_ydata()) == pytest.approx([8.1, 8.2, 8.4])
    assert list(theirs.get_ydata()) == list(paper.HEADS["mars-t"]["beauty"].values())
