"""Python and the command line give the same result, to the last digit."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from tests.cli.calls import outputs
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings
from marsrec.data import catalog
from marsrec.data.catalog import Dataset, Statistics
from marsrec.paper import PAPER, PaperSettings

TOY = Dataset("toy", "Toy", "https://example.org", Statistics(30, 15, 300), licence="Free.", citation="Nobody.")


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A public data set with settings of the paper that nothing else would come to."""
    (tmp_path / "data").mkdir()
    log = cyclic_log(users=30, events=10, items=15).rename({"time": "timestamp"})
    log.write_parquet(tmp_path / "data" / "toy.parquet")
    monkeypatch.setenv("MARSREC_DATA", str(tmp_path / "data"))
    monkeypatch.setitem(catalog.CATALOG, "toy", TOY)
    monkeypatch.setitem(PAPER, "toy", PaperSettings(length=7, dropout=0.3, heads=3))


@pytest.mark.parametrize("model", ["mars", "sasrec"])
def test_a_public_data_set_is_fitted_alike(model: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    training = TrainingSettings(epochs=2, seed=3)
    with caplog.at_level(logging.INFO, "marsrec"):
        fitted = Recommender(model, options={"dim": 8}, training=training).fit("toy")
    notes = [message for message in caplog.messages if "s/epoch" not in message and "ompil" not in message]
    fitted.save(tmp_path / "python")
    options = ["--model", model, "--dim", 8, "--epochs", 2, "--seed", 3]
    _, stderr = outputs("fit", "toy", *options, "--out", tmp_path / "command")

    python, command = (folder_of(tmp_path / name) for name in ("python", "command"))
    assert command == python
    assert notes
    assert all(note in stderr for note in notes)
    assert fitted.settings.length == 7
    assert fitted.settings.encoder.dropout == 0.3  # type: ignore[attr-defined]
    if model == "mars":
        assert fitted.settings.readout.heads == 3  # type: ignore[attr-defined]


def folder_of(folder: Path) -> dict[str, Any]:
    """All of a saved model but how long it took: settings, metrics, and digests of weights, items and histories."""
    config = json.loads((folder / "config.json").read_text())
    metrics = json.loads((folder / "metrics.json").read_text())
    del metrics["minutes"], config["files"]["metrics.json"]
    for epoch in metrics["curve"]:
        del epoch["seconds"]
    return {**config, "metrics": metrics}


def test_options_of_ones_own_win_over_the_papers(tmp_path: Path) -> None:
    training = TrainingSettings(epochs=1)
    fitted = Recommender("mars-t", options={"dim": 8, "readout.heads": 2}, training=training)
    fitted.fit("toy", progress=False)
    outputs("fit", "toy", "--model", "mars-t", "--dim", 8, "--heads", 2, "--epochs", 1, "--out", tmp_path / "m")
    assert fitted.settings == Recommender.load(tmp_path / "m").settings
    assert (fitted.settings.length, fitted.settings.readout.heads) == (7, 2)  # type: ignore[attr-defined]
