"""What models cost is counted right, measured once, and shown beside the paper's figures."""

from pathlib import Path

import pytest
import torch
from benchmarks.measure import peak_bytes
from reproduction.costs import FOLDER, Cost, Costs, measure, measured
from reproduction.efficiency import section
from tests.lab.made import result

from marsrec.errors import SettingsError
from marsrec.lab.page import Picture, Table
from marsrec.models import RECIPES
from reproduction import costs


def test_costs_of_all_recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "ROWS", 2)
    path = measured("hawkes", tmp_path, rounds=1)
    before = path.read_bytes()
    assert measured("hawkes", tmp_path) == path
    assert path.read_bytes() == before  # not measured twice
    _, _, table, picture, *without_results = section([], tmp_path).parts
    assert without_results[:2] == ["## hawkes: accuracy against cost", "Not run."]
    assert isinstance(table, Table)
    assert isinstance(picture, Picture)
    texts = picture.draw().axes[0].texts
    assert [text.get_text() for text in texts] == list(RECIPES)
    assert [text.get_text() for text in texts if text.get_weight() == "bold"] == ["mars-t", "mars-m"]
    rows = {row[0]: row for row in table.rows}
    assert list(rows) == list(RECIPES)
    d, L, inner = 64, 50, 256
    block = L * (4 * d * d + 2 * d * inner) + 2 * L * L * d  # projections, feed-forward, scores and mixing
    assert float(rows["sasrec"][2]) == pytest.approx(2 * block / 1e6, abs=0.01)
    assert float(rows["mars-t"][2]) > float(rows["sasrec"][2])
    assert all(float(cell.split(" (")[0].replace(",", "")) > 0 for row in table.rows for cell in row[1:6])
    (cost, *_) = Costs.model_validate_json(before).rows
    assert cost.inference_quartiles == (cost.inference, cost.inference)  # of one round
    assert cost.step_quartiles == (cost.step, cost.step)


def write_costs(folder: Path, **times: Cost) -> None:
    costs = Costs(
        data="beauty",
        items=12_101,
        length=50,
        rows=[*times.values()],
        versions={"torch": "2"},
        machine={"torch threads": 2},
    )
    (folder / FOLDER).mkdir()
    (folder / FOLDER / "beauty.json").write_text(costs.model_dump_json(exclude_none=True))


def cost(model: str, inference: float, quartiles: tuple[float, float] | None = None) -> Cost:
    return Cost(
        model=model,
        parameters=878_000,
        accumulates=5.61,
        inference=inference,
        inference_quartiles=quartiles,
        step=0.05,
        step_quartiles=quartiles and (0.04, 0.06),
        memory=16.0,
    )


def test_costs_stand_beside_the_papers_with_their_spread(tmp_path: Path) -> None:
    write_costs(tmp_path, a=cost("sasrec", 0.175, (0.17, 0.19)), b=cost("core", 0.2, (0.2, 0.2)))
    table = section([], tmp_path).parts[2]
    assert isinstance(table, Table)
    assert table.rows[0] == [
        "sasrec",
        "878",
        "5.61",
        "0.175 (0.170–0.190)",
        "0.050 (0.040–0.060)",
        "16.0",
        "878 / 5.10",
        "+0.0% / +10.0%",
        "0.197 / 1.22",
    ]
    assert table.rows[1][6:] == ["none", "", "none"]
    assert table.caption.endswith("Times are medians (and quartiles) of the turns.")
    assert section([], tmp_path).parts[-1] == "Not run: all recipes on ml-1m."


def test_costs_without_a_spread_are_read_and_say_so(tmp_path: Path) -> None:
    write_costs(tmp_path, a=cost("sasrec", 0.175))
    assert "quartiles" not in (tmp_path / FOLDER / "beauty.json").read_text()
    table = section([], tmp_path).parts[2]
    assert isinstance(table, Table)
    assert table.rows[0][3:5] == ["0.175", "0.050"]
    assert table.caption.endswith("whose spread was not noted.")


def test_accuracy_against_cost(tmp_path: Path) -> None:
    times = {"gru4rec": 0.2, "sasrec": 0.1, "mars-t": 0.3, "mars-m": 0.4}
    write_costs(tmp_path, **{model: cost(model, taken) for model, taken in times.items()})
    found = [result("gru4rec", 0.06), result("sasrec", 0.08), result("mars-t", 0.09)]
    parts = section(found, tmp_path).parts
    table, picture = parts[parts.index("## beauty: accuracy against cost") + 1 :][:2]
    assert isinstance(table, Table)
    assert isinstance(picture, Picture)
    assert [list(row) for row in table.rows] == [
        ["gru4rec", "6.00", "0.200", "sasrec", "5.82, 0.044", "+3.1%", "none"],
        ["sasrec", "8.00", "0.100", "none", "8.04, 0.197", "-0.5%", "mars-t"],
        ["mars-t", "9.00", "0.300", "none", "8.84, 0.151", "+1.8%", "none"],
        ["mars-m", "not run", "0.400", "", "8.02, 0.237", "", "sasrec, mars-t"],
    ]
    axis = picture.draw().axes[0]
    (front,) = axis.lines
    assert list(front.get_xdata()) == [0.1, 0.3]
    assert list(front.get_ydata()) == pytest.approx([8.0, 9.0])
    assert [text.get_text() for text in axis.texts if text.get_weight() == "bold"] == ["mars-t"]


def test_one_model_alone_is_not_on_a_frontier(tmp_path: Path) -> None:
    write_costs(tmp_path, **{model: cost(model, 0.1) for model in ("sasrec", "mars-t")})
    parts = section([result("sasrec", 0.08)], tmp_path).parts
    assert parts[parts.index("## beauty: accuracy against cost") + 1] == "Only sasrec was run: nothing to compare."
    assert not any(isinstance(part, Picture) and "accuracy" in part.name for part in parts)


def test_nothing_measured_says_so(tmp_path: Path) -> None:
    assert section([], tmp_path).parts[-1] == "Not run: all recipes on beauty, ml-1m."


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(SettingsError, match="efficiency is measured at the size of hawkes or of beauty"):
        measure("nothing")


def test_peak_of_memory() -> None:
    def run() -> None:
        torch.empty(1_000_000)
        first = torch.empty(1_000_000)
        first + torch.empty(1)

    assert peak_bytes(run) == pytest.approx(8e6, rel=0.01)
