"""How a model is trained. Whoever only asks a trained one does not wait for Lightning to be imported."""

from collections.abc import Mapping
from typing import Any, Literal, Self, TypeAlias

from pydantic import Field, model_validator

from marsrec.errors import SettingsError
from marsrec.models import targets_per_batch
from marsrec.nn.settings import ModelSettings
from marsrec.settings import Settings

MONITOR = "NDCG@10"
"""The validation metric that decides when to stop and which weights are kept."""

CHECKPOINT = "training.safetensors"
"""The state of an unfinished training, in its folder."""
CURVE = "curve.csv"
"""Losses and validation metrics of each epoch, in the training's folder."""

Tracker: TypeAlias = Literal["csv", "tensorboard", "mlflow", "wandb"]
"""What training can log to."""


FAST: Mapping[str, Any] = {"epochs": 25, "learning_rate": 3e-3, "schedule": "cosine", "warm_up": 2.0}
"""What the preset "fast" sets."""


class TrainingSettings(Settings):
    """How a model is trained. The defaults are the paper's."""

    preset: Literal["paper", "fast"] = "paper"
    """What the other settings are unless they are given. "paper" trains at a constant rate until validation stops
    improving; "fast" makes 25 epochs, two of them to warm up, at three times the rate along a cosine."""
    epochs: int = Field(200, ge=1)
    """At most this many passes over the training events."""
    patience: int = Field(20, ge=1)
    """Stop after this many epochs without a better validation NDCG@10."""
    learning_rate: float = Field(1e-3, gt=0)
    """Learning rate of Adam; with a schedule, the highest one."""
    schedule: Literal["constant", "cosine"] = "constant"
    """Course of the learning rate: constant, or falling along a cosine to zero at the end of the last epoch."""
    warm_up: float = Field(0.0, ge=0)
    """Epochs in which the learning rate rises from zero to its value."""
    targets_per_batch: int = Field(2048, ge=1)
    """Number of predicted events per step. If not given, a recipe may have its own (fearec: 256)."""
    pool: int = Field(16, ge=1)
    """Windows are sorted by length within pools of this many batches: larger pads less, smaller mixes lengths better.
    Prefixes are mixed."""
    overlap: float = Field(0.5, ge=0, lt=1)
    """Share of a window that is only context. Long histories are cut into windows that overlap by this share, so that
    every target sees at least the overlap."""
    prefix_share: float = Field(1.0, gt=0, le=1)
    """Share of the prefixes that is drawn for each epoch, for models that are not causal."""
    sampled_negatives: int = Field(0, ge=0)
    """For large catalogs: compare each target with this many drawn items instead of all items. Popular items are
    drawn more often; the log-Q correction removes that bias. 0 is the full softmax."""
    seed: int = Field(0, ge=0)
    """Seed of initial weights, dropout and the order of batches."""
    max_minutes: float | None = Field(None, gt=0)
    """Stop after this time and keep the best weights so far. A resumed training gets the same time again."""
    accelerator: str = "auto"
    """Where to train, by Lightning's name: cpu, gpu or auto."""
    devices: int | str = Field("auto", union_mode="left_to_right")
    """Number of devices: auto is one, -1 is all, otherwise as in Lightning. Each device takes its own batches, so a
    step has that many times more targets. If batches do not divide evenly, some are used twice, also in
    validation."""
    strategy: str = "auto"
    """How several devices work together, by Lightning's name, such as ddp."""
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    """Number format, by Lightning's name. On most CPUs mixed precision is slower."""
    logger: tuple[Tracker, ...] = ()
    """Also log settings, the figures of each epoch and the final ones: csv and tensorboard in the training's folder,
    mlflow where MLFLOW_TRACKING_URI says or in mlflow.db, wandb at Weights & Biases. May be repeated."""

    @model_validator(mode="before")
    @classmethod
    def _without_what_was(cls, values: Any) -> Any:
        """Settings that were saved by earlier versions say whether TensorBoard logs were written beside them."""
        if isinstance(values, Mapping) and isinstance(values.get("tensorboard"), bool):
            return {name: value for name, value in values.items() if name != "tensorboard"}
        return values

    @model_validator(mode="before")
    @classmethod
    def _by_preset(cls, values: Any) -> Any:
        if not isinstance(values, Mapping) or values.get("preset") != "fast":
            return values
        few = {"warm_up": 0.0} if isinstance(epochs := values.get("epochs"), int) and epochs <= FAST["warm_up"] else {}
        return {**FAST, **few, **values}

    @model_validator(mode="after")
    def _rises_in_time(self) -> Self:
        if self.warm_up and self.warm_up >= self.epochs:
            raise SettingsError(
                f"warm_up={self.warm_up:g} takes all of epochs={self.epochs}, so that the learning rate never reaches "
                "its value. Give fewer epochs of warm-up."
            )
        return self

    def suited_to(self, model: ModelSettings) -> Self:
        """The same, with the recipe's number of targets per batch unless one was given."""
        usual = targets_per_batch(model)
        if "targets_per_batch" in self.model_fields_set or self.targets_per_batch == usual:
            return self
        return self.model_copy(update={"targets_per_batch": usual})


NOT_DECISIVE = {"max_minutes", "logger", "accelerator"}
"""Training settings that do not decide a result."""
