"""What `tune` searches: a range for each setting that is worth a search, with the reason for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from marsrec.data.splits import Split
from marsrec.errors import SettingsError
from marsrec.nn.settings import ModelSettings
from marsrec.recommender import Recommender
from marsrec.training.settings import TrainingSettings

if TYPE_CHECKING:
    from optuna.trial import Trial

TRAINING = "training."
"""What the names of training settings begin with; the others are model settings by dotted name."""

Value = str | int | float


@dataclass(frozen=True)
class Range:
    """The values of one setting that are tried."""

    name: str
    """A model setting by its dotted name, or a training setting after "training."."""
    values: tuple[Value, ...]
    """Lowest and highest; all of them for a choice."""
    scale: Literal["choice", "linear", "log"]
    reason: str

    def draw(self, trial: "Trial") -> Value:
        """The value of a trial, rounded to what makes a difference."""
        if self.scale == "choice":
            chosen: Any = trial.suggest_categorical(self.name, self.values)
            return cast(Value, chosen)
        low, high = self.values
        if isinstance(low, int) and isinstance(high, int):
            return trial.suggest_int(self.name, low, high, log=self.scale == "log")
        drawn = trial.suggest_float(self.name, float(low), float(high), log=self.scale == "log")
        return float(f"{drawn:.2g}")

    def start(self, model: ModelSettings, training: TrainingSettings) -> Value:
        """Where a search starts: the value of the range that is nearest to the default's."""
        usual = value_of(self.name, model, training)
        if self.scale == "choice":
            if isinstance(usual, str):
                return usual if usual in self.values else self.values[0]
            return min(self.values, key=lambda value: abs(float(value) - usual))
        low, high = self.values
        nearest: Value = min(max(usual, low), high)
        return nearest


RANGES = (
    Range(
        f"{TRAINING}schedule",
        ("cosine",),
        "choice",
        "A constant rate needs patience, which takes most of the time.",
    ),
    Range(f"{TRAINING}epochs", (8, 48), "log", "The length of the cosine."),
    Range(
        f"{TRAINING}learning_rate",
        (5e-4, 1e-2),
        "log",
        "The paper's 0.001, and higher rates for short trainings.",
    ),
    Range(f"{TRAINING}targets_per_batch", (512, 1024, 2048), "choice", "On small logs large batches leave few steps."),
    Range("encoder.dropout", (0.0, 0.6), "linear", "The paper's 0.2 and 0.5, and what lies around them."),
    Range("readout.dropout", (0.0, 0.4), "linear", "Dropout on the user vector."),
    Range("readout.heads", (2, 3, 4, 6, 8), "choice", "The paper's 4 and 8, and fewer."),
    Range("length", (25, 50, 100, 200), "choice", "The paper's 50 and 200, and none beyond the histories."),
    Range("dim", (32, 64, 128), "choice", "The paper's 64, half and twice."),
    Range("item_std", (0.02, 0.2), "log", "The paper's 0.02, and wider embeddings."),
)
"""A setting that the model does not have, or that the caller gave, is not searched. docs/tuning.md shows the same."""


def search_space(recommender: Recommender, settings: ModelSettings, split: Split) -> tuple[Range, ...]:
    """The ranges of a model on some data.

    Parameters
    ----------
    recommender : Recommender
        The default: what it was given of settings stays.
    settings : ModelSettings
        Its model on these data.
    split : Split
        The data: no length beyond their longest histories is tried.
    """
    given = {*recommender.options, *(f"{TRAINING}{name}" for name in recommender.training.model_fields_set)}
    space = []
    for searched in RANGES:
        if searched.name in given or value_of(searched.name, settings, recommender.training) is None:
            continue
        values = searched.values
        if searched.name == "length":
            usual = float(np.quantile(split.train_lengths, 0.95))
            longer = [value for value in values if float(value) >= usual]
            values = tuple(value for value in values if float(value) < usual or value == longer[0])
        if searched.name == "dim":
            values = tuple(value for value in values if _builds(settings, int(value)))
        if values:
            space.append(Range(searched.name, values, searched.scale, searched.reason))
    if not space:
        raise SettingsError("there is nothing to search: every setting was given. Leave some of them out.")
    return tuple(space)


def value_of(name: str, model: ModelSettings, training: TrainingSettings) -> Any:
    """A setting's value by its name in the table; None where the model has no such setting."""
    if name.startswith(TRAINING):
        return getattr(training, name.removeprefix(TRAINING))
    part: Any = model
    for leaf in name.split("."):
        part = getattr(part, leaf, None)
    return part


def tuned(recommender: Recommender, values: Mapping[str, Any], seed: int) -> Recommender:
    """The same recommender, not fitted, with other settings."""
    training = {name.removeprefix(TRAINING): value for name, value in values.items() if name.startswith(TRAINING)}
    given = recommender.training.model_dump(exclude_unset=True, exclude={"logger", "max_minutes"})
    return Recommender(
        recommender.name,
        encoder=recommender.encoder,
        readout=recommender.readout,
        scorer=recommender.scorer,
        objective=recommender.objective,
        options={**recommender.options, **{k: v for k, v in values.items() if not k.startswith(TRAINING)}},
        published=recommender.published,
        training=TrainingSettings(**{**given, **training, "seed": seed}),
    )


def _builds(settings: ModelSettings, dim: int) -> bool:
    """Whether the parts of a model can have this width."""
    try:
        settings.model_copy(update={"dim": dim}).build(2)
    except SettingsError:
        return False
    return True
