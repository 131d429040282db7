"""Loggers get the settings, each whole epoch once and the final figures; a resumed training goes on in the same run."""

import json
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import yaml
from tests.synthetic import cyclic_log, histories_of

from marsrec.data.splits import leave_one_out
from marsrec.errors import SettingsError
from marsrec.models import model_settings
from marsrec.recommender import Recommender
from marsrec.training.fit import fit
from marsrec.training.loggers import RUNS
from marsrec.training.settings import CURVE, Tracker, TrainingSettings

OPTIONS = {"dim": 8, "encoder.layers": 1, "encoder.inner": 16, "length": 12}


def train(folder: Path | None, *names: Tracker, epochs: int = 2, resume: bool = False) -> Recommender:
    training = TrainingSettings(epochs=epochs, targets_per_batch=256, logger=names)
    recommender = Recommender("sasrec", options=OPTIONS, training=training)
    return recommender.fit(cyclic_log(users=20), folder=folder, resume=resume, progress=False)


def test_csv_has_each_epoch_and_the_final_figures(tmp_path: Path) -> None:
    recommender = train(tmp_path, "csv")
    rows = pl.read_csv(tmp_path / "csv" / "metrics.csv")
    curve = pl.read_csv(tmp_path / CURVE)
    assert rows["step"].to_list() == [1, 2, recommender.metrics["best_epoch"]]
    for name in ("train/loss", "valid/NDCG@10"):
        assert rows[name].to_list() == [*curve[name], None]
    for part, logged in (("valid", "best_valid"), ("test", "test")):
        assert rows[f"{logged}/NDCG@10"].to_list() == [None, None, recommender.metrics[part]["NDCG@10"]]
    settings = yaml.safe_load((tmp_path / "csv" / "hparams.yaml").read_text())
    assert settings["model"]["dim"] == 8
    assert settings["training"]["epochs"] == 2
    assert settings["data"]["users"] == 20


def test_tensorboard_has_each_epoch_once_also_of_a_resumed_training(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(tmp_path, "tensorboard", "csv")
    recommender = train(tmp_path, "tensorboard", "csv", epochs=4, resume=True)
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    losses = {event.step: event.value for event in events.Scalars("train/loss")}
    curve = pl.read_csv(tmp_path / CURVE)
    assert losses == pytest.approx(dict(zip(curve["epoch"], curve["train/loss"], strict=True)))
    final = events.Scalars("test/NDCG@10")[-1].value
    assert final == pytest.approx(recommender.metrics["test"]["NDCG@10"])
    rows = pl.read_csv(tmp_path / "csv" / "metrics.csv").filter(pl.col("train/loss").is_not_null())
    assert rows["step"].to_list() == [1, 2, 3, 4]


def test_mlflow_gets_a_run_that_a_resumed_training_goes_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.tracking import MlflowClient

    store = (tmp_path / "store").as_uri()
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # a database takes seconds to set up
    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    train(tmp_path, "mlflow")
    recommender = train(tmp_path, "mlflow", epochs=3, resume=True)
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("marsrec")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FINISHED"
    assert run.data.params["model/encoder/name"] == "transformer"
    assert run.data.params["data/users"] == "20"
    assert run.data.tags["mlflow.runName"] == "sasrec, 1 layer"
    losses = [row["train/loss"] for row in recommender.metrics["curve"]]
    logged = client.get_metric_history(run.info.run_id, "train/loss")
    assert [metric.step for metric in logged] == [1, 2, 3]
    assert [metric.value for metric in logged] == pytest.approx(losses)
    assert run.data.metrics["test/NDCG_at_10"] == pytest.approx(recommender.metrics["test"]["NDCG@10"])
    assert json.loads((tmp_path / RUNS).read_text()) == {"mlflow": run.info.run_id}


WANDB = """
from types import SimpleNamespace
run, runs = None, []

class Run:
    def __init__(self, **settings):
        self.id = settings["id"] or f"run{len(runs)}"
        self.given, self.config, self.rows, self.ended = settings, {}, [], None
        self.config = SimpleNamespace(update=lambda values, **_: self.settings.update(values))
        self.settings = {}
        runs.append(self)

    def define_metric(self, *names, **how):
        pass

    def log(self, row, **how):
        self.rows.append(row)

    def finish(self, exit_code=None):
        self.ended = exit_code

def init(**settings):
    return Run(**settings)
"""


def test_wandb_gets_a_run_that_a_resumed_training_goes_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a stand-in of the package: the names that Lightning's logger takes from it."""
    for file, text in {"": WANDB, "sdk/": "", "sdk/lib/": "class RunDisabled: pass", "wandb_run/": WANDB}.items():
        place = tmp_path / "site" / "wandb" / file / "__init__.py"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text if file != "wandb_run/" else "from wandb import Run")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr("lightning.pytorch.loggers.wandb._WANDB_AVAILABLE", True)
    try:
        train(tmp_path, "wandb")
        recommender = train(tmp_path, "wandb", epochs=3, resume=True)
        first, second = sys.modules["wandb"].runs
    finally:
        for name in [name for name in sys.modules if name.split(".")[0] == "wandb"]:
            del sys.modules[name]
    assert (first.given["project"], first.given["name"], first.given["resume"]) == (
        "marsrec",
        "sasrec, 1 layer",
        "allow",
    )
    assert second.given["id"] == first.id
    assert first.settings["training"]["epochs"] == 2
    losses = [row["train/loss"] for run in (first, second) for row in run.rows if "train/loss" in row]
    assert losses == [row["train/loss"] for row in recommender.metrics["curve"]]
    assert second.rows[-1]["test/NDCG@10"] == recommender.metrics["test"]["NDCG@10"]
    assert [run.ended for run in (first, second)] == [0, 0]


def test_a_missing_package_is_named_before_data_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mlflow", "wandb"):
        monkeypatch.setitem(sys.modules, name, None)
        recommender = Recommender("sasrec", training=TrainingSettings(logger=(name,)))  # type: ignore[arg-type]
        with pytest.raises(SettingsError, match=rf"logger {name} needs {name}: pip install 'marsrec\[{name}\]'"):
            recommender.fit("no such file.csv")


def test_what_writes_to_a_folder_needs_one() -> None:
    with pytest.raises(SettingsError, match=r"logger csv and tensorboard: there is no folder.*folder=\.\.\."):
        train(None, "csv", "tensorboard")


def test_a_store_that_cannot_be_reached_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "nowhere://x")
    with pytest.raises(SettingsError, match="logger mlflow: cannot be opened"):
        train(tmp_path, "mlflow")


def test_fit_itself_logs_and_a_failed_training_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[str] = []
    monkeypatch.setattr("lightning.pytorch.loggers.CSVLogger.finalize", lambda self, status: ended.append(status))
    split = leave_one_out(histories_of(cyclic_log(users=20)))
    training = TrainingSettings(epochs=2, targets_per_batch=256, logger=("csv",))
    settings = model_settings("sasrec", options=OPTIONS)
    fit(split, settings, training, folder=tmp_path, progress=False)

    def fail(row: Any) -> bool:
        raise RuntimeError("full")

    with pytest.raises(RuntimeError, match="full"):
        fit(split, settings, training, folder=tmp_path, progress=False, watch=fail)
    assert ended == ["success", "failed"]


def test_settings_of_earlier_versions_load_and_decide_the_same() -> None:
    old = TrainingSettings.model_validate({"epochs": 3, "tensorboard": True})
    assert old == TrainingSettings(epochs=3)
    assert TrainingSettings.model_validate_json('{"epochs": 3, "tensorboard": false}') == old
