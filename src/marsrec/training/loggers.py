"""Where the figures of a training go besides its own files: Lightning's loggers, with a row per epoch.

They get the settings when a training begins, losses and validation metrics after each whole epoch, and the final
figures at the end. A training that is resumed goes on in the same run.
"""

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import CSVLogger, Logger, MLFlowLogger, TensorBoardLogger, WandbLogger

from marsrec.atomic import atomic_file
from marsrec.errors import SettingsError, needs
from marsrec.training.settings import MONITOR, Tracker, TrainingSettings

PROJECT = "marsrec"
"""What MLflow calls the experiment and Weights & Biases the project."""
RUNS = "loggers.json"
"""The runs of a training at trackers, by logger, in the training's folder."""
LOCAL = ("csv", "tensorboard")
"""Loggers that write into the training's folder."""


def check_loggers(names: Sequence[Tracker]) -> None:
    """Refuse loggers whose package is missing."""
    for name in names:
        if name != "csv":
            with needs(name, f"logger {name}"):
                import_module(name)


@contextmanager
def logged(training: TrainingSettings, folder: Path | None, name: str) -> "Iterator[Loggers]":
    """The loggers of a training, closed at its end.

    Parameters
    ----------
    training : TrainingSettings
        Which loggers, in its field `logger`.
    folder : Path, optional
        Of the training.
    name : str
        What trackers call the run.
    """
    loggers = Loggers(training.logger, folder, name)
    try:
        yield loggers
    except BaseException:
        loggers.close("failed")
        raise
    loggers.close("success")


class Loggers:
    """Lightning's loggers of one training."""

    def __init__(self, names: Sequence[Tracker], folder: Path | None, name: str) -> None:
        check_loggers(names)
        if folder is None and (local := [name for name in names if name in LOCAL]):
            raise SettingsError(
                f"logger {' and '.join(local)}: there is no folder to write to. Give fit one: fit(log, folder=...)."
            )
        self.names, self.folder, self.name = tuple(dict.fromkeys(names)), folder, name
        self.open: dict[Tracker, Logger] = {}

    @rank_zero_only
    def begin(self, settings: Mapping[str, Any], curve: Sequence[Mapping[str, float]]) -> None:
        """Open the loggers.

        Parameters
        ----------
        settings : mapping
            What is trained and how, by name; may be nested.
        curve : sequence of rows
            Epochs that were done before; a training that starts has none.
        """
        if not self.names:
            return
        runs = self._runs() if curve else {}
        try:
            for name in self.names:
                logger = self.open[name] = self._make(name, runs.get(name), len(curve))
                if name == "csv" or not curve:  # a run that goes on has its settings
                    logger.log_hyperparams(dict(settings))
                if name in LOCAL:
                    logger.save()
                else:
                    runs[name] = str(logger.version)
        except Exception as error:  # each tracker has errors of its own
            raise SettingsError(f"logger {name}: cannot be opened ({str(error).splitlines()[0]}).") from error
        if self.folder is not None:
            with atomic_file(self.folder / RUNS) as temporary:
                temporary.write_text(json.dumps(runs), encoding="utf-8")
        if "csv" in self.open:  # is written anew, so that an epoch that was done twice stands there once
            for row in curve:
                self._log("csv", row)

    @rank_zero_only
    def epoch(self, row: Mapping[str, float]) -> None:
        """Log an epoch of the curve."""
        for name in self.open:
            self._log(name, row)

    @rank_zero_only
    def result(self, metrics: Mapping[str, Any]) -> None:
        """Log the figures of the weights that were kept: validation, and test where it was measured."""
        parts = {f"best_{part}" if part == "valid" else part: metrics.get(part, {}) for part in ("valid", "test")}
        figures = {f"{part}/{name}": value for part, values in parts.items() for name, value in values.items()}
        for name in self.open:
            ranked = {"hp_metric": metrics["valid"][MONITOR]} if name == "tensorboard" else {}  # its table of runs
            self._log(name, {"epoch": metrics["best_epoch"], **figures, **ranked})

    @rank_zero_only
    def close(self, status: str) -> None:
        """Say how the training ended."""
        for name, logger in self.open.items():
            logger.finalize(status)
            if name == "wandb":  # else the next training of this process would be part of the same run
                logger.experiment.finish(exit_code=int(status != "success"))  # type: ignore[attr-defined]
        self.open = {}

    def _log(self, name: Tracker, row: Mapping[str, float]) -> None:
        values = {key: value for key, value in row.items() if key != "epoch"}
        if name == "mlflow":  # which knows no @
            values = {key.replace("@", "_at_"): value for key, value in values.items()}
        self.open[name].log_metrics(values, step=int(row["epoch"]))

    def _make(self, name: Tracker, run: str | None, done: int) -> Logger:
        """Lightning's logger; `run` is the one that it goes on with, after so many epochs."""
        if name in LOCAL:
            folder = str(self.folder)
            if name == "csv" or not done:
                shutil.rmtree(Path(folder) / name, ignore_errors=True)
            if name == "csv":
                return CSVLogger(folder, name=name, version="", flush_logs_every_n_steps=1)
            return TensorBoardLogger(folder, name=name, version="", purge_step=done + 1)
        if name == "mlflow":
            import mlflow

            for noisy in ("mlflow", "alembic", "lightning.pytorch.loggers.mlflow"):
                logging.getLogger(noisy).setLevel(logging.ERROR)  # that a new store is a new one is no warning
            store = os.environ.get("MLFLOW_TRACKING_URI") or mlflow.get_tracking_uri()  # which keeps the first it saw
            return MLFlowLogger(PROJECT, self.name, tracking_uri=store, run_id=run)
        return WandbLogger(self.name, self.folder or ".", version=run, project=os.environ.get("WANDB_PROJECT", PROJECT))

    def _runs(self) -> dict[Tracker, str]:
        """The runs that this training has at trackers."""
        file = None if self.folder is None else self.folder / RUNS
        return json.loads(file.read_text(encoding="utf-8")) if file is not None and file.exists() else {}
