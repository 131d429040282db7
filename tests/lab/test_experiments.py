"""The experiments that come with the project can be run: known data, known models, settings that exist."""

from pathlib import Path

import pytest

from marsrec.data.catalog import CATALOG
from marsrec.data.source import EMBEDDED
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
