"""fit: train until validation stops improving, keep the best weights, and survive being killed."""

import hashlib
import logging
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import lightning as L
import numpy as np
import polars as pl
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, Checkpoint, EarlyStopping
from torch import Tensor

from marsrec.atomic import atomic_file
from marsrec.compute.memory import give_back
from marsrec.data.splits import Split
from marsrec.data.times import PER_SECOND
from marsrec.errors import DataError, SettingsError
from marsrec.models import decisive, title
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.base import Readout
from marsrec.nn.settings import ModelSettings
from marsrec.provenance import versions
from marsrec.training import half_precision
from marsrec.training.checkpoints import SafetensorsIO
from marsrec.training.loggers import Loggers, logged
from marsrec.training.module import TrainingModule
from marsrec.training.progress import Progress
from marsrec.training.repeats import fit_repeats
from marsrec.training.settings import CHECKPOINT, CURVE, MONITOR, NOT_DECISIVE, TrainingSettings

Watch: TypeAlias = Callable[[Mapping[str, float]], bool]
"""Looks at an epoch, and says whether training is to end with it."""


@dataclass(frozen=True)
class Fitted:
    """A trained model and how it came about."""

    model: SequenceModel
    curve: list[dict[str, float]]
    """Losses, validation metrics and seconds of each epoch."""
    best_epoch: int
    """The epoch (counted from 1) whose weights the model has."""
    minutes: float
    complete: bool
    """False if the time limit cut the training short; it can be resumed then."""


class Keeper(Checkpoint):
    """Keeps the best weights and the curve, stops when time is up, and saves the state after every epoch."""

    def __init__(self, folder: Path | None, identity: str, max_minutes: float | None, watch: Watch | None) -> None:
        self.folder, self.identity, self.max_minutes, self.watch = folder, identity, max_minutes, watch
        self.best: dict[str, Tensor] = {}
        self.best_epoch, self.best_value = 0, -1.0
        self.curve: list[dict[str, float]] = []
        self.began = self.epoch_began = time.monotonic()
        self.earlier = 0.0  # seconds of the runs that this one resumes
        self.cut_short = self.stopped = False
        self.progress: Progress | None = None
        self.loggers: Loggers | None = None
        self.settings: Mapping[str, Any] = {}

    @property
    def seconds(self) -> float:
        """Time spent on this training, over all its runs."""
        return self.earlier + time.monotonic() - self.began

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run has to know."""
        return {
            "identity": self.identity,
            "best": self.best,
            "best_epoch": self.best_epoch,
            "best_value": self.best_value,
            "curve": self.curve,
            "seconds": self.seconds,
            "stopped": self.stopped,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume a killed run."""
        if state_dict["identity"] != self.identity:
            raise SettingsError(
                f"{self.folder}: the unfinished training there has other data or settings. "
                "Resume with the same ones, or start over with --overwrite."
            )
        self.best, self.curve = state_dict["best"], state_dict["curve"]
        self.best_epoch, self.best_value = state_dict["best_epoch"], state_dict["best_value"]
        self.earlier, self.stopped = state_dict["seconds"], state_dict["stopped"]

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Open the loggers, now that each process knows its rank."""
        if self.loggers is not None:
            self.loggers.begin(self.settings, self.curve)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Start the epoch's clock."""
        self.epoch_began = time.monotonic()

    def on_train_batch_end(self, trainer: L.Trainer, *args: Any) -> None:
        """Stop in the middle of an epoch when time is up; the trainer still validates."""
        if self.max_minutes is None:
            return
        time_is_up = time.monotonic() - self.began > 60 * self.max_minutes
        if trainer.strategy.reduce_boolean_decision(time_is_up, all=False):  # all devices stop at the same step
            trainer.should_stop = self.cut_short = True

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Note the epoch, keep its weights if they are the best, and save."""
        values = {name: float(value) for name, value in trainer.callback_metrics.items()}
        epoch = trainer.current_epoch + 1
        row = {"epoch": epoch, **values, "seconds": round(time.monotonic() - self.epoch_began, 3)}
        self.curve.append(row)
        if values[f"valid/{MONITOR}"] > self.best_value:
            self.best_epoch, self.best_value = epoch, values[f"valid/{MONITOR}"]
            weights = pl_module.get_submodule("model").state_dict()
            self.best = {name: value.detach().cpu().clone() for name, value in weights.items()}
        if self.loggers is not None and not self.cut_short:
            self.loggers.epoch(row)
        if self.watch is not None and not self.cut_short and self.watch(row):
            trainer.should_stop = True
        self.stopped = trainer.should_stop and not self.cut_short
        if self.folder is not None and not self.cut_short:  # an epoch that was cut short is done again
            trainer.save_checkpoint(self.folder / CHECKPOINT)
            if trainer.is_global_zero:
                with atomic_file(self.folder / CURVE) as temporary:
                    pl.DataFrame(self.curve).write_csv(temporary)
        if self.progress is not None and trainer.is_global_zero:
            self.progress.epoch_done(trainer)
        give_back()


def fit(
    split: Split,
    model: ModelSettings,
    training: TrainingSettings | None = None,
    *,
    folder: Path | None = None,
    resume: bool = False,
    progress: bool = True,
    loggers: Loggers | None = None,
    watch: Watch | None = None,
) -> Fitted:
    """Train a model on a split.

    Parameters
    ----------
    split : Split
        Training events, and the validation targets that decide when to stop.
    model, training : settings
        What to train, and how.
    folder : Path, optional
        Where the state is saved after each epoch, with the curve as csv. Without it a killed training is lost.
    resume : bool
        Go on from the state in `folder` if there is one. The result is the one of an undisturbed run.
    progress : bool
        Show a progress bar, or a line per epoch where there is no terminal.
    loggers : Loggers, optional
        Log to these, which the caller closes, instead of to those that `training` names.
    watch : function, optional
        Is called with the row of the curve after each whole epoch; training ends when it returns True.
    """
    training = training or TrainingSettings().suited_to(model)
    if loggers is None:
        with logged(training, folder, title(model)) as loggers:
            return fit(
                split, model, training, folder=folder, resume=resume, progress=progress, loggers=loggers, watch=watch
            )
    if split.train_lengths.max() < 2:
        raise DataError(
            f"there is nothing to train on: no user has two events left for training after the {split.name} split. "
            "Give a log with longer histories."
        )
    quiet_lightning()
    L.seed_everything(training.seed, verbose=False)
    network = model.build(split.histories.n_items, split.histories.unit)
    if type(network.readout).begin is not Readout.begin:
        network.readout.begin(_gaps(split))
    if network.causal and training.prefix_share < 1:
        raise SettingsError(
            "prefix_share belongs to models that are not causal and train on a row per target; this one trains on all "
            "positions in one pass. Leave it out."
        )
    module = TrainingModule(network, model, split, training)
    state = None
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        state = folder / CHECKPOINT
    keeper = Keeper(folder, _identity(split, model, training), training.max_minutes, watch)
    keeper.loggers, keeper.settings = loggers, _described(split, model, training)
    stopper = EarlyStopping(f"valid/{MONITOR}", mode="max", patience=training.patience)
    callbacks: list[Callback] = [stopper, keeper]
    if progress:
        keeper.progress = Progress(training.epochs, training.patience, keeper, stopper)
        callbacks.append(keeper.progress)
    try:
        trainer = _trainer(training, callbacks)
    except (MisconfigurationException, ValueError, RuntimeError) as error:
        raise SettingsError(f"training settings: {error}") from error
    start = str(state) if resume and state is not None and state.exists() else None
    done = False
    if start is not None:
        # Where early stopping or the number of epochs had ended the run, Lightning would train on or complain.
        reached = SafetensorsIO().load_checkpoint(start)["callbacks"][keeper.state_key]
        keeper.load_state_dict(reached)  # other data or settings are refused here, before their shapes clash
        done = reached["stopped"] or len(reached["curve"]) >= training.epochs
    if not done:
        if training.precision != "32-true" and trainer.strategy.root_device.type == "cpu":
            half_precision.check()
        if state is not None and not resume:
            state.unlink(missing_ok=True)
        trainer.fit(module, ckpt_path=start)
    else:
        loggers.begin(keeper.settings, keeper.curve)
    network.load_state_dict(keeper.best)
    network.cpu().eval()
    fit_repeats(network, split, model.length)
    return Fitted(network, keeper.curve, keeper.best_epoch, keeper.seconds / 60, complete=not keeper.cut_short)


def _gaps(split: Split) -> Tensor:
    """Hours between training events that follow each other and are not at the same time."""
    histories = split.histories
    place = np.arange(len(histories))
    begin, end = (np.repeat(ends, histories.lengths) for ends in (histories.offsets[:-1], split.train_ends))
    gaps = np.diff(histories.times, prepend=0)[(place > begin) & (place < end)]
    return torch.from_numpy(gaps[gaps > 0] / (3600 * PER_SECOND[histories.unit])).float()


def _described(split: Split, model: ModelSettings, training: TrainingSettings) -> dict[str, Any]:
    """What loggers are told of a training."""
    return {
        "name": title(model),
        "model": model.model_dump(mode="json"),
        "training": training.model_dump(mode="json"),
        "data": split.histories.statistics(),
        "split": split.name,
        "versions": versions(),
    }


def _trainer(training: TrainingSettings, callbacks: list[Callback]) -> L.Trainer:
    return L.Trainer(
        max_epochs=training.epochs,
        accelerator=training.accelerator,
        devices=1 if training.devices == "auto" else training.devices,
        strategy=training.strategy,
        precision=training.precision,
        callbacks=callbacks,
        plugins=[SafetensorsIO()],
        logger=False,  # the keeper tells the loggers: whole epochs alone, each once
        reload_dataloaders_every_n_epochs=1,
        num_sanity_val_steps=0,
        enable_checkpointing=True,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def _identity(split: Split, model: ModelSettings, training: TrainingSettings) -> str:
    """What has to be the same for a training to be resumed: all that decides its result but how long it may take."""
    digest = hashlib.sha256(split.histories.fingerprint.encode())
    for positions in (split.train_ends, split.valid.positions, split.test.positions):
        digest.update(positions.tobytes())
    digest.update(decisive(model).encode())
    longer = {"epochs"} if training.schedule == "constant" else set()  # a cosine ends with the last epoch
    digest.update(training.model_dump_json(exclude_defaults=True, exclude=NOT_DECISIVE | longer).encode())
    return digest.hexdigest()[:16]


def quiet_lightning() -> None:
    """Keep Lightning's greetings and its advice on data-loading workers to itself."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning"):
        logging.getLogger(name).setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*GPU available but not used.*")
    warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*")
