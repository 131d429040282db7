"""Where MARS helps: groups of users, and data whose attention is spread more or less."""

from pathlib import Path

from tests.lab.made import result, write_with_ranks

from marsrec.lab.attention import Entropy
from marsrec.lab.inspection import Inspection, write
from marsrec.lab.page import Table
from marsrec.lab.results import INSPECTIONS, Result
from reproduction import entropy, subgroups


def written(folder: Path, **ranks: list[float]) -> list[Result]:
    """sasrec and mars-t with these ranks of four users, on beauty."""
    made = [result(name.replace("_", "-"), sum(rank <= 10 for rank in of) / 4) for name, of in ranks.items()]
    for one, of in zip(made, ranks.values(), strict=True):
        write_with_ranks(folder, one, of, [3, 5, 10, 60])
    return made


def test_groups_by_length_of_history_stand_beside_the_papers(tmp_path: Path) -> None:
    made = written(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 5])
    section = subgroups.section(made, tmp_path)
    table = next(part for part in section.parts if isinstance(part, Table))
    assert [[cell.split("], p")[0] for cell in row] for row in table.rows] == [
        ["1-5", "2", "50.00 → 100.00 (+100.0%)", "+50.00 [+0.00, +100.00", "6.57 → 7.98 (+21.5%)", "+78.5 points"],
        ["6-15", "1", "0.00 → 0.00", "+0.00 [+0.00, +0.00", "7.66 → 8.40 (+9.7%)", ""],
        ["16-49", "0", "no users", "", "12.89 → 14.49 (+12.4%)", ""],
        [">=50", "1", "0.00 → 100.00", "+100.00 [+100.00, +100.00", "20.26 → 18.95 (-6.5%)", ""],
    ]
    assert table.rows[1][3].endswith("p = 1.0000")
    assert (
        section.parts[-1] == "Not run: sasrec and mars-t on sports, games, yelp, ml-1m; mamba4rec and mars-m on ml-1m."
    )


def test_groups_of_other_data_stand_alone(tmp_path: Path) -> None:
    made = written(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 5])
    other = [one.model_copy(update={"statistics": {"average_length": 8.9, "users": 3}}) for one in made]
    table = next(part for part in subgroups.section(other, tmp_path).parts if isinstance(part, Table))
    assert table.columns[-1] == "difference over users"


def test_entropy_and_gain_stand_beside_the_papers(tmp_path: Path) -> None:
    made = written(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 99])
    layers = [
        Entropy(mean=0.9, std=0.1, mean_all=0.8, std_all=0.3),
        Entropy(mean=0.7, std=0.1, mean_all=0.6, std_all=0.3),
    ]
    inspected = Inspection(data="beauty", model="sasrec", histories=4, attention=layers, decay=None, examples=[])
    write(inspected, tmp_path / INSPECTIONS / f"{made[0].name}.json")
    spread, gains = (part for part in entropy.section(made, tmp_path).parts if isinstance(part, Table))
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
    assert subgroups.section([result("sasrec")], tmp_path).parts[1] == (
        "Not run: sasrec and mars-t on beauty, sports, games, yelp, ml-1m; mamba4rec and mars-m on ml-1m."
    )
    spread, _ = (part for part in entropy.section([result("sasrec")], tmp_path).parts if isinstance(part, Table))
    assert [row[2] for row in spread.rows[:3]] == ["not inspected", "not inspected", "not run"]
