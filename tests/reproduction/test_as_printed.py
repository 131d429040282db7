"""The paper's own form of its main table: each row of ours stands above the paper's."""

from reproduction.as_printed import MODELS, as_printed
from tests.lab.made import result


def test_ours_stand_above_the_papers_with_best_and_second_marked() -> None:
    found = [result("sasrec", 0.08), result("mars-t", 0.088), result("tisasrec", 0.07)]
    rows = as_printed(found).rows
    assert len(rows) == 2 * 3 * 5
    ours, theirs = (dict(zip(MODELS, row[3:], strict=True)) for row in rows[:2])
    assert [row[:3] for row in rows[:2]] == [["beauty", "HR@10", "ours"], ["beauty", "HR@10", "paper"]]
    assert (ours["mars-t"], ours["sasrec"], ours["tisasrec"], ours["core"]) == ("*8.80*", "8.00 (2)", "7.00", "-")
    assert (theirs["mars-t"], theirs["tisasrec"], theirs["sasrec"]) == ("*8.84*", "8.78 (2)", "8.04")


def test_dense_data_are_those_in_the_papers_order() -> None:
    dense = {"average": 165.0, "options": {"length": 200}}
    found = [result("sasrec", hits, data=data, **dense) for data, hits in (("ml-1m", 0.2), ("ml-1m-recbole", 0.29))]
    row = next(row for row in as_printed(found).rows if row[:3] == ["ml-1m-recbole", "HR@10", "ours"])
    assert dict(zip(MODELS, row[3:], strict=True))["sasrec"] == "29.00"
