"""Data whose attention is spread more or less, and what MARS gains there."""

from pathlib import Path

from reproduction.entropy import section
from tests.lab.made import pair_with_ranks, result

from marsrec.lab.attention import Entropy
from marsrec.lab.inspection import Inspection, write
from marsrec.lab.page import Table
from marsrec.lab.results import INSPECTIONS


def test_entropy_and_gain_stand_beside_the_papers(tmp_path: Path) -> None:
    made = pair_with_ranks(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 99])
    layers = [
        Entropy(mean=0.9, std=0.1, mean_all=0.8, std_all=0.3),
        Entropy(mean=0.7, std=0.1, mean_all=0.6, std_all=0.3),
    ]
    inspected = Inspection(data="beauty", model="sasrec", histories=4, attention=layers, decay=None, examples=[])
    write(inspected, tmp_path / INSPECTIONS / f"{made[0].name}.json")
    spread, gains = (part for part in section(made, tmp_path).parts if isinstance(part, Table))
    assert [list(row) for row in spread.rows[:3]] == [
        ["beauty", "0", "0.900 ± 0.100", "+0.115", "0.800 ± 0.300", "+0.015", "0.785"],
        ["beauty", "1", "0.700 ± 0.100", "-0.045", "0.600 ± 0.300", "-0.145", "0.745"],
        ["sports", "0", "not run", "", "not run", "", "0.812"],
    ]
    assert gains.rows[0][1] == "+100.0%"
    assert gains.rows[0][2].startswith("+25.00 [+0.00, +75.00], p = ")
    assert gains.rows[0][3:] == ["+10.0%", "+90.0 points", "+10.0%"]
    assert gains.rows[1] == ["sports", "not run", "", "+15.2%", "", "+13.5%"]  # there over fearec
    assert len(gains.rows) == 5


def test_what_was_not_run_or_not_inspected_says_so(tmp_path: Path) -> None:
    spread, _ = (part for part in section([result("sasrec")], tmp_path).parts if isinstance(part, Table))
    assert [row[2] for row in spread.rows[:3]] == ["not inspected", "not inspected", "not run"]
