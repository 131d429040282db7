"""Experiments say what is to be run; those that come with the project can be: data, models and settings exist."""

from pathlib import Path

import pytest
from tests.lab.running import folders, states
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.data.catalog import CATALOG
from marsrec.data.source import EMBEDDED
from marsrec.errors import SettingsError
from marsrec.lab.experiment import read_experiment
from marsrec.models import model_settings
from marsrec.paper import paper_options

FILES = sorted((Path(__file__).parents[2] / "experiments").glob("*.toml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_runs_of_an_experiment_are_distinct_and_have_settings_that_exist(path: Path) -> None:
    experiment = read_experiment(path)
    assert len({run.title for run in experiment.runs}) == len(experiment.runs) > 0
    assert {run.data for run in experiment.runs} | set(experiment.efficiency) <= {EMBEDDED, *CATALOG}
    for run in experiment.runs:
        usual = paper_options(run.data, run.model, run.encoder, run.readout)
        settings = model_settings(
            run.model,
            encoder=run.encoder,
            readout=run.readout,
            options={**usual, **run.options},
            published=run.published,
        )
        for name, value in run.options.items():
            part, _, leaf = name.rpartition(".")
            assert getattr(getattr(settings, part) if part else settings, leaf) == value, run.title


def test_there_are_experiments() -> None:
    assert {path.stem for path in FILES} >= {"main", "ablation", "sensitivity", "density", "smoke"}


def test_variants_and_a_training_for_all(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        """
        training = { epochs = 7, patience = 3 }
        [[runs]]
        data = "hawkes"
        model = ["mars-t", "mars-m"]
        options = { dim = 32 }
        variants = { b1 = { "readout.real_time" = false }, b3 = { "readout.diversity" = 0.0 } }
        training = { patience = 5 }
        """
    )
    runs = read_experiment(path).runs
    assert [run.title for run in runs] == [
        "hawkes/mars-t (b1)/seed 0",
        "hawkes/mars-m (b1)/seed 0",
        "hawkes/mars-t (b3)/seed 0",
        "hawkes/mars-m (b3)/seed 0",
    ]
    assert runs[0].options == {"dim": 32, "readout.real_time": False}
    assert (runs[0].training.epochs, runs[0].training.patience) == (7, 5)


def test_hawkes_settings_are_for_hawkes(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text() + "\nhawkes = { users = 20 }")
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), *folders(tmp_path)])
    assert "hawkes settings are for data 'hawkes'" in str(answer.exception)


def test_two_labels_of_one_run_are_one_run(experiment: Path, tmp_path: Path) -> None:
    same = experiment.read_text().replace("[[runs]]", '[[runs]]\nlabel = "again"')
    experiment.write_text(experiment.read_text() + same)
    assert len(states(experiment, tmp_path)) == 4


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs = 3", "runs: Input should be a valid list"),
        ("[[runs]]\ndata = 'x'\nmodle = 'y'", "modle: Extra inputs"),
        ("[[runs]", "not TOML"),
        ("[[runs]]\ndata = 'x'\nmodel = 'y'\ntraining = { epoch = 3 }", "epoch: Extra inputs"),
        ("[[runs]]\ndata = 'x'\nmodel = 'y'\ntraining = { seed = 3 }", "seed stands beside data and model"),
    ],
)
def test_bad_experiments_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_experiment(path)
