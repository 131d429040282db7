"""A log and a model that the tests of all commands share."""

from pathlib import Path

import pytest
from tests.cli.calls import QUICK, call
from tests.synthetic import cyclic_log


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "shop.csv"
    cyclic_log(users=30, events=10, items=15).write_csv(path)
    return path


@pytest.fixture(scope="session")
def saved(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that `marsrec fit` wrote. Tests do not change it."""
    folder = tmp_path_factory.mktemp("models") / "mars"
    call("fit", log, "--model", "mars-t", "--out", folder, *QUICK)
    return folder
