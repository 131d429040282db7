"""Where MARS helps: groups of users by length of history."""

from pathlib import Path

from reproduction.subgroups import section
from tests.lab.made import pair_with_ranks, result

from marsrec.lab.page import Table


def test_groups_by_length_of_history_stand_beside_the_papers(tmp_path: Path) -> None:
    made = pair_with_ranks(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 5])
    page = section(made, tmp_path)
    table = next(part for part in page.parts if isinstance(part, Table))
    assert [[cell.split("], p")[0] for cell in row] for row in table.rows] == [
        ["1-5", "2", "50.00 → 100.00 (+100.0%)", "+50.00 [+0.00, +100.00", "6.57 → 7.98 (+21.5%)", "+78.5 points"],
        ["6-15", "1", "0.00 → 0.00", "+0.00 [+0.00, +0.00", "7.66 → 8.40 (+9.7%)", ""],
        ["16-49", "0", "no users", "", "12.89 → 14.49 (+12.4%)", ""],
        [">=50", "1", "0.00 → 100.00", "+100.00 [+100.00, +100.00", "20.26 → 18.95 (-6.5%)", ""],
    ]
    assert table.rows[1][3].endswith("p = 1.0000")
    assert page.parts[-1] == "Not run: sasrec and mars-t on sports, games, yelp, ml-1m; mamba4rec and mars-m on ml-1m."


def test_groups_of_other_data_stand_alone(tmp_path: Path) -> None:
    made = pair_with_ranks(tmp_path, sasrec=[1, 99, 99, 99], mars_t=[1, 1, 99, 5])
    other = [one.model_copy(update={"statistics": {"average_length": 8.9, "users": 3}}) for one in made]
    table = next(part for part in section(other, tmp_path).parts if isinstance(part, Table))
    assert table.columns[-1] == "difference over users"


def test_what_was_not_run_says_so(tmp_path: Path) -> None:
    assert section([result("sasrec")], tmp_path).parts[1] == (
        "Not run: sasrec and mars-t on beauty, sports, games, yelp, ml-1m; mamba4rec and mars-m on ml-1m."
    )
