"""Variants are known by their settings, and compared with the full model and with the paper's figures."""

from pathlib import Path
from typing import Any

import pytest
from reproduction.ablation import ABLATIONS
from tests.lab.made import result, write_with_ranks

from marsrec.lab.page import Picture, Table
from marsrec.lab.results import Result
from reproduction import ablation, extensions, sensitivity


def tables(section: Any) -> list[Table]:
    return [part for part in section.parts if isinstance(part, Table)]


def variant(name: str, hits: float, recipe: str = "mars-t", **given: Any) -> Result:
    _, readout, options = ABLATIONS[name]
    return result(recipe, hits, readout=readout, options=options, **given)


def ranked(folder: Path, *made: Result) -> list[Result]:
    """With ranks of a thousand users that are as good as the results say."""
    for one in made:
        hits = round(1000 * one.test["HR@10"])
        write_with_ranks(folder, one, [1.0] * hits + [99.0] * (1000 - hits), [5] * 1000)
    return list(made)


def elsewhere(made: Result) -> Result:
    """The same, on other data of that name."""
    return made.model_copy(update={"statistics": {**made.statistics, "users": 3}})


def test_each_ablation_is_compared_with_full_and_with_the_paper(tmp_path: Path) -> None:
    made = [variant(name, 0.08 + index / 100) for index, name in enumerate(ABLATIONS) if name != "b4"]
    (table,) = tables(ablation.section(ranked(tmp_path, *made), tmp_path))
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == list(ABLATIONS)
    assert rows["full"][1:] == [
        "8.00", "4.00", "2.00", "", "", "", "8.95 / 4.46 / 3.10", "-10.6% / -10.3% / -35.5%"
    ]  # fmt: skip
    assert rows["backbone"][1:4] == ["9.00", "4.50", "2.25"]
    assert rows["backbone"][4].startswith("**+12.5%: +1.00 [+0.4")
    assert rows["backbone"][5].startswith("**+12.5%: +1.00 [+0.4")  # all hits are at rank 1
    assert rows["backbone"][6:] == ["-4.7%", "8.53 / 4.22 / 2.89", "+5.5% / +6.6% / -22.1%"]
    assert rows["b4"][1:] == ["not run", "not run", "not run", "", "", "-0.8%", "8.88 / 4.41 / 3.04", ""]


def test_a_variant_is_compared_with_full_on_the_seeds_that_both_have(tmp_path: Path) -> None:
    made = [variant("full", 0.10, seed=0), variant("full", 0.20, seed=1), variant("b1", 0.22, seed=1)]
    (table,) = tables(ablation.section(ranked(tmp_path, *made), tmp_path))
    assert table.rows[0][1] == "15.00 ± 7.07"
    assert table.rows[2][4].startswith("**+10.0%: +2.00 [")


def test_the_backbone_of_mars_m_is_a_mamba_of_two_layers(tmp_path: Path) -> None:
    made = [variant("full", 0.08, "mars-m"), variant("backbone", 0.07, "mars-m"), result("mamba4rec", 0.05)]
    (table,) = tables(ablation.section(ranked(tmp_path, *made), tmp_path))
    assert [row[1] for row in table.rows[:2]] == ["8.00", "7.00"]


def test_full_and_backbone_have_a_table_that_tells_what_was_not_run(tmp_path: Path) -> None:
    section = ablation.section(ranked(tmp_path, result("mars-t", 0.09), result("sasrec", 0.08)), tmp_path)
    (table,) = tables(section)
    assert [row[1] for row in table.rows] == ["9.00", "8.00", *["not run"] * 5]
    assert section.parts[-1] == (
        "Not run: mars-t on sports, games, ml-1m, yelp; mars-m on beauty, sports, games, ml-1m, yelp."
    )
    (table,) = tables(ablation.section([result("sasrec", 0.08)], tmp_path))
    assert [row[4] for row in table.rows[:2]] == ["", "full: not run"]
    assert tables(ablation.section([result("gru4rec")], tmp_path)) == []


def test_data_that_the_paper_does_not_have_show_none_of_its_figures(tmp_path: Path) -> None:
    made = [elsewhere(variant(name, 0.08)) for name in ("full", "b1")]
    section = ablation.section(ranked(tmp_path, *made), tmp_path)
    assert tables(section)[0].columns[-1] == "NDCG@10 against full"
    assert "mars-t on beauty, sports" in str(section.parts[-1])
    assert tables(ablation.section(made[:1], tmp_path)) == []  # there is nothing to compare it with
    swept = [elsewhere(result("mars-t", options={"readout.heads": heads})) for heads in (1, 4)]
    assert "paper" not in str(tables(sensitivity.section(ranked(tmp_path, *swept), tmp_path))[0].columns)


def test_extensions_stand_under_their_own_names(tmp_path: Path) -> None:
    made = [result("mars-t", 0.08), result("mars-t", 0.09, options={"readout.clock": "request"})]
    made.append(result("mars-t", 0.06, options={"readout.values": True}))
    (table,) = tables(extensions.section(ranked(tmp_path, *made), tmp_path))
    rows = {row[0]: row for row in table.rows}
    assert rows["request clock"][1] == "9.00"
    assert rows["request clock"][4].startswith("**+12.5%: +1.00 [")
    assert rows["values"][4].startswith("**-25.0%: -2.00 [")
    assert rows["linear time"][1:] == ["not run", "not run", "not run", "", ""]
    assert extensions.section([result("mars-t")], tmp_path).parts[-1] == "Not run."


def test_sweeps_stand_beside_the_papers_and_tell_what_was_not_run(tmp_path: Path) -> None:
    made = [result("mars-t", hits, options={"readout.heads": heads}) for heads, hits in ((1, 0.07), (2, 0.08))]
    made.append(result("mars-t", 0.09))
    section = sensitivity.section(ranked(tmp_path, *made), tmp_path)
    (table,) = tables(section)
    assert table.columns[5:] == ["paper: HR@10 / NDCG@10 / MRR@10", "against it"]
    assert [row[0] for row in table.rows] == ["1", "2", "4", "8", "16"]
    assert table.rows[0][4].startswith("**-22.2%: -2.00 [")
    assert table.rows[2][4:] == ["default", "9.01 / 4.42 / 3.02", "-0.1% / +1.8% / -25.5%"]
    assert table.rows[4][1:] == ["not run", "not run", "not run", "", "8.90 / 4.46 / 3.11", ""]
    assert section.parts[-1] == (
        "Not run: heads of mars-t on ml-1m; heads of mars-m on ml-1m; dropout on beauty, ml-1m."
    )
    (picture,) = [part for part in section.parts if isinstance(part, Picture)]
    axis = picture.draw().axes[0]
    here, theirs = axis.lines
    assert list(here.get_ydata()) == pytest.approx([7, 8, 9])
    assert list(theirs.get_ydata()) == [8.69, 8.96, 9.01, 9.03, 8.9]
    assert [tick.get_text() for tick in axis.get_xticklabels()] == ["1", "2", "4", "8", "16"]


def test_a_sweep_of_dropout_has_the_papers_one_metric(tmp_path: Path) -> None:
    made = [result("mars-t", 0.08), result("mars-t", 0.09, options={"encoder.dropout": 0.3})]
    (table,) = tables(sensitivity.section(ranked(tmp_path, *made), tmp_path))
    assert table.columns[5] == "paper: HR@10, backbone not named"
    assert table.rows[2][5:] == ["8.59", "+4.8%"]
