"""A run may take other parts than its recipe's, all four kinds."""

from pathlib import Path

import pytest

from marsrec.errors import SettingsError
from marsrec.lab.experiment import read_experiment
from marsrec.lab.runner import model_of, place_of
from marsrec.models import parts

GRID = """
[[runs]]
data = "hawkes"
model = "sasrec"
hawkes = { users = 20 }
"""


def test_parts_are_replaced_and_belong_to_the_name_of_a_run(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    replaced = 'encoder = "gru"\nreadout = "mars"\nscorer = "cosine"\nobjective = "next item + contrast"\n'
    path.write_text(GRID + GRID + replaced)
    plain, other = read_experiment(path).runs
    assert parts(model_of(plain)) == ("transformer", "last", "dot", "next item")
    assert parts(model_of(other)) == ("gru", "mars", "cosine", "next item + contrast")
    names = {place_of(run, tmp_path, tmp_path).name for run in (plain, other)}
    assert any(name.startswith("hawkes-users20-sasrec-seed0-") for name in names)
    assert len(names) == 2


def test_an_unknown_part_is_named(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(GRID + 'scorer = "cosin"\n')
    (run,) = read_experiment(path).runs
    with pytest.raises(SettingsError, match="unknown scorer 'cosin'; known are biased"):
        model_of(run)
