"""A grid of four small runs."""

from pathlib import Path

import pytest
from tests.synthetic import cyclic_log

GRID = """
[[runs]]
data = "{data}"
model = ["gru4rec", "mars-t"]
seed = [0, 1]
options = {{ length = 10, dim = 8 }}
training = {{ epochs = {epochs}, patience = 50, targets_per_batch = 64 }}
"""


def write_grid(folder: Path) -> Path:
    cyclic_log(users=20).write_csv(folder / "shop.csv")
    path = folder / "grid.toml"
    path.write_text(GRID.format(data=folder / "shop.csv", epochs=2))
    return path


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    return write_grid(tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same grid, for tests that look at one run of it."""
    return write_grid(tmp_path_factory.mktemp("shared"))
