"""What models cost is counted right, measured once, and shown beside the paper's figures."""

from pathlib import Path

import pytest
import torch

from marsrec.errors import SettingsError
from marsrec.lab.efficiency import measure, measured, peak_bytes, section
from marsrec.lab.page import Picture, Table
from marsrec.models import RECIPES


def test_costs_of_all_recipes(tmp_path: Path) -> None:
    path = measured("hawkes", tmp_path, rounds=1)
    before = path.read_bytes()
    assert measured("hawkes", tmp_path) == path
    assert path.read_bytes() == before  # not measured twice
    _, _, table, picture = section(tmp_path).parts
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
    assert all(float(cell.replace(",", "")) > 0 for row in table.rows for cell in row[1:6])


def test_nothing_measured_says_so(tmp_path: Path) -> None:
    assert section(tmp_path).parts[-1] == "Not run."


def test_unknown_sizes_are_refused() -> None:
    with pytest.raises(SettingsError, match="efficiency is measured at the size of hawkes or of beauty"):
        measure("nothing")


def test_peak_of_memory() -> None:
    def run() -> None:
        torch.empty(1_000_000)
        first = torch.empty(1_000_000)
        first + torch.empty(1)

    assert peak_bytes(run) == pytest.approx(8e6, rel=0.01)
