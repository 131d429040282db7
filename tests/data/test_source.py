"""What data are opened by a name or a path."""

from pathlib import Path

import pytest
from tests.synthetic import cyclic_log

from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.data.source import open_data


def test_hawkes_is_synthetic_and_a_log_is_not(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "hawkes.csv")
    assert open_data("hawkes").synthetic
    assert not open_data(tmp_path / "hawkes.csv").synthetic


def test_a_folder_comes_before_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Histories.from_log(read_log(cyclic_log(users=20))).save(tmp_path / "hawkes")  # real people, whatever it is called
    found = open_data("hawkes")
    assert found.histories.n_users == 20
    assert not found.synthetic
