"""Targets at the time of the latest event and later ones are reported apart."""

from pathlib import Path

from reproduction.same_time import section
from tests.lab.made import result, write_with_ranks

from marsrec.lab.comparison import contests
from marsrec.lab.page import Table
from marsrec.lab.pages import groups


def written(folder: Path, times: list[str] | None) -> list:
    made = {name: result(name) for name in ("mars-t", "sasrec")}
    ranks = {"mars-t": [1.0, 11.0, 1.0, 3.0], "sasrec": [1.0, 1.0, 11.0, 3.0]}
    for name, one in made.items():
        write_with_ranks(folder, one, ranks[name], [3, 4, 5, 6], times)
    return list(made.values())


TIMES = ["same time", "same time", "later", "later"]


def test_figures_and_differences_by_the_time_of_the_target(tmp_path: Path) -> None:
    found = written(tmp_path, TIMES)
    figures, differences = (part for part in section(found, tmp_path).parts if isinstance(part, Table))
    cells = {row[0]: row[1:] for row in figures.rows}
    assert figures.columns[1:3] == ["NDCG@10, same time (2)", "NDCG@10, later (2)"]
    assert cells["mars-t"][:2] == ["50.00", "*75.00*"]
    assert cells["sasrec"][:2] == ["*100.00*", "25.00"]
    (row,) = differences.rows
    assert row[0] == "sasrec"
    assert [cell.split()[0] for cell in row[1:3]] == ["-50.00", "+50.00"]

    page = groups.section(contests(found), tmp_path)
    by_length, by_time = (part for part in page.parts if isinstance(part, Table))
    assert by_time.columns == ["model", "same time (2)", "later (2)"]
    assert {row[0]: row[1] for row in by_time.rows} == {"mars-t": "50.00", "sasrec": "*100.00*"}
    assert len(by_length.rows) == 2


def test_data_without_ties_and_older_ranks_say_so(tmp_path: Path) -> None:
    for times in (["later"] * 4, None):
        parts = section(written(tmp_path, times), tmp_path).parts
        assert not any(isinstance(part, Table) for part in parts)
        assert parts[-1] == "All targets are in one group, or the ranks were written without times."
