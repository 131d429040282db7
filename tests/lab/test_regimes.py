"""Where MARS helps: groups of users, and data of several densities."""

from pathlib import Path

import pytest
from tests.lab.made import result, write_with_ranks

from marsrec.lab.page import Picture, Table
from marsrec.lab.regimes import backbone_rule, subgroups


def test_groups_by_length_of_history(tmp_path: Path) -> None:
    pair = {"sasrec": [1.0, 99.0, 99.0, 99.0], "mars-t": [1.0, 1.0, 99.0, 5.0]}
    made = [result(name) for name in pair]
    for one, ranks in zip(made, pair.values(), strict=True):
        write_with_ranks(tmp_path, one, ranks, [3, 5, 10, 60])
    table = next(part for part in subgroups(made, tmp_path).parts if isinstance(part, Table))
    assert [list(row) for row in table.rows] == [
        ["1-5", "2", "50.00 → 100.00 (+100.0%)", "6.57 → 7.98 (+21.5%)"],
        ["6-15", "1", "0.00 → 0.00", "7.66 → 8.40 (+9.7%)"],
        ["16-49", "0", "no users", "12.89 → 14.49 (+12.4%)"],
        [">=50", "1", "0.00 → 100.00", "20.26 → 18.95 (-6.5%)"],
    ]


def test_the_rule_is_judged_on_data_of_every_density(tmp_path: Path) -> None:
    found = []
    for data, average, sparse, dense in (
        ("ml-1m-latest20", 18.0, 50, 30),
        ("ml-1m-latest100", 80.0, 50, 70),
        ("hawkes-mean_events80", 78.0, 70, 50),
        ("hawkes-mean_events20", 18.0, 50, 50),
    ):
        for model, hits in (("mars-t", sparse), ("mars-m", dense)):
            found.append(result(model, hits / 100, data=data, average=average))
            write_with_ranks(tmp_path, found[-1], [1.0] * hits + [99.0] * (100 - hits), [5] * 100)
    section = backbone_rule(found, tmp_path)
    assert "in 2 of the 3 cases" in section.parts[1]
    assert "ml-1m at about 38 events" in section.parts[1]
    table = next(part for part in section.parts if isinstance(part, Table))
    assert [(row[0], row[6], row[8], row[9]) for row in table.rows] == [
        ("hawkes-mean_events20", "+0.0%", "mars-t", "undecided"),
        ("ml-1m-latest20", "-40.0%", "mars-t", "mars-t"),
        ("hawkes-mean_events80", "-28.6%", "mars-m", "mars-t"),
        ("ml-1m-latest100", "+40.0%", "mars-m", "mars-m"),
    ]
    picture = next(part for part in section.parts if isinstance(part, Picture))
    lines = {line.get_label(): list(line.get_ydata()) for line in picture.draw().axes[0].lines}
    assert lines["ml-1m"] == pytest.approx([-40, 40])


def test_nothing_run_says_so(tmp_path: Path) -> None:
    assert backbone_rule([result("sasrec")], tmp_path).parts[-1] == "Not run."
    assert subgroups([result("sasrec")], tmp_path).parts[-1] == "Not run."
