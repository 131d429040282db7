"""Parts of somebody's own module are known to the processes that train."""

import sys
from pathlib import Path

import pytest
from tests.lab.running import folders, invoke
from tests.synthetic import cyclic_log

from marsrec.lab.results import read_results

PARTS = """
from typing import Literal

from marsrec.nn.encoders.base import Encoder, EncoderSettings


class Plain(Encoder):
    causal = True

    def forward(self, embedded, batch):
        return embedded


class PlainSettings(EncoderSettings):
    name: Literal["plain"] = "plain"

    def build(self, dim, length):
        return Plain(dim)
"""
GRID = """
[[runs]]
data = "{data}"
model = "sasrec"
encoder = "plain"
options = {{ length = 10, dim = 8 }}
training = {{ epochs = 1, targets_per_batch = 64 }}
"""


@pytest.mark.usefixtures("parts_of_this_test")
def test_workers_import_the_modules_of_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_own_parts.py").write_text(PARTS)
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    grid = tmp_path / "grid.toml"
    grid.write_text(GRID.format(data=tmp_path / "shop.csv"))
    invoke("--import", "my_own_parts", "lab", "run", grid, "--workers", 2, *folders(tmp_path))
    assert "my_own_parts" in sys.modules
    found = read_results(tmp_path / "results-a")
    assert [result.training.seed for result in found] == [0]
    assert [result.origins for result in found] == [{"encoder": {"module": "my_own_parts"}}]
