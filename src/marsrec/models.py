"""The recipe table, and the rule that picks the backbone of MARS.

A named model is a recipe: an encoder, a readout and a scorer. A new model is a new file and one line here.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.errors import SettingsError
from marsrec.nn.encoders.mamba import MambaSettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.readouts.mars import MarsSettings
from marsrec.nn.scorers import DotSettings
from marsrec.settings import Settings, explain_validation

EncoderSettings = Annotated[TransformerSettings | MambaSettings, Field(discriminator="name")]
ReadoutSettings = Annotated[LastSettings | MarsSettings, Field(discriminator="name")]
ScorerSettings = DotSettings

ENCODERS: dict[str, type[TransformerSettings] | type[MambaSettings]] = {
    "transformer": TransformerSettings,
    "mamba": MambaSettings,
}
READOUTS: dict[str, type[LastSettings] | type[MarsSettings]] = {"last": LastSettings, "mars": MarsSettings}

DENSE_FROM = 50.0
"""Average training-sequence length from which data count as dense (τ in the paper's Eq. select)."""


class ModelSettings(Settings):
    """A model: its three parts and the sizes they share."""

    encoder: EncoderSettings = TransformerSettings()
    """What turns embedded events into states."""
    readout: ReadoutSettings = LastSettings()
    """What turns states into the user vector."""
    scorer: ScorerSettings = DotSettings()
    """What turns user vectors into item scores."""
    dim: int = Field(64, ge=1)
    """Width d of embeddings, states and user vectors."""
    length: int = Field(50, ge=1)
    """Number of latest events that are looked at."""

    def build(self, n_items: int, unit: TimeUnit = "s") -> SequenceModel:
        """Make the model, with random weights from torch's global generator."""
        return SequenceModel(
            n_items,
            self.dim,
            self.encoder.build(self.dim, self.length),
            self.readout.build(self.dim, tau0=3600.0 * PER_SECOND[unit]),
            self.scorer.build(self.dim, n_items),
        )


class Recipe(Settings):
    """A named model's parts."""

    encoder: EncoderSettings = TransformerSettings()
    readout: ReadoutSettings = LastSettings()
    scorer: ScorerSettings = DotSettings()
    objective: Literal["next item"] = "next item"
    """What is learned: the next item at each position."""
    time: str = "order"
    """What the model sees of time."""


RECIPES: dict[str, Recipe] = {
    "sasrec": Recipe(),
    "mamba4rec": Recipe(encoder=MambaSettings(layers=1)),
    "mars-t": Recipe(readout=MarsSettings(), time="real elapsed time"),
    "mars-m": Recipe(encoder=MambaSettings(layers=2), readout=MarsSettings(), time="real elapsed time"),
}


def backbone(average_length: float) -> str:
    """Name of the recipe that the backbone rule takes: mars-t for sparse data, mars-m for dense data.

    Examples
    --------
    >>> backbone(8.9)
    'mars-t'
    >>> backbone(165.5)
    'mars-m'
    """
    return "mars-m" if average_length >= DENSE_FROM else "mars-t"


def rule(average_history: float, average_training: float, settings: ModelSettings) -> str:
    """How the backbone rule came to a model, and how to take another."""
    dense = average_training >= DENSE_FROM
    heads = f" with {settings.readout.heads} heads" if isinstance(settings.readout, MarsSettings) else ""
    return (
        f"Average length {average_history:.1f} events, {average_training:.1f} of them for training, which is "
        f"{f'{DENSE_FROM:.0f} or more' if dense else f'below {DENSE_FROM:.0f}'}: {title(settings)}{heads}. "
        f"--model {'mars-t' if settings.encoder.name == 'mamba' else 'mars-m'} or --heads K takes another."
    )


def model_settings(
    model: str = "mars",
    average_length: float = 0.0,
    *,
    encoder: str | None = None,
    readout: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> ModelSettings:
    """Settings of a named model, fitted to the density of the data and changed by options.

    Parameters
    ----------
    model : str
        A recipe's name, or "mars" to let the backbone rule choose.
    average_length : float
        Average training-sequence length. From 50 on data count as dense: length 200, dropout 0.2 and 8 MARS heads
        instead of 50, 0.5 and 4, the paper's values.
    encoder, readout : str, optional
        Replace one part of the recipe by another.
    options : mapping, optional
        Values by dotted name, such as {"readout.heads": 8, "length": 100}.

    Examples
    --------
    >>> model_settings("mars-t", 165.5).readout.heads
    8
    >>> model_settings("sasrec", readout="mars", options={"readout.clock": "request"}).readout.clock
    'request'
    """
    name = backbone(average_length) if model == "mars" else model
    recipe = RECIPES[_known(name, RECIPES, "model")]
    dense = average_length >= DENSE_FROM
    values: dict[str, Any] = {
        "encoder": recipe.encoder.model_dump(),
        "readout": recipe.readout.model_dump(),
        "scorer": recipe.scorer.model_dump(),
        "length": 200 if dense else 50,
    }
    if encoder is not None:
        values["encoder"] = ENCODERS[_known(encoder, ENCODERS, "encoder")]().model_dump()
    if readout is not None:
        values["readout"] = READOUTS[_known(readout, READOUTS, "readout")]().model_dump()
    values["encoder"]["dropout"] = 0.2 if dense else 0.5
    if values["readout"]["name"] == "mars":
        values["readout"]["heads"] = 8 if dense else 4
    for path, value in (options or {}).items():
        *parents, leaf = path.split(".")
        place: Any = values
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise SettingsError(f"option {path!r}: the parts of a model are encoder, readout and scorer.")
        place[leaf] = value
    try:
        return ModelSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"model settings: {explain_validation(error)}") from None


def title(settings: ModelSettings) -> str:
    """What a model is called: its recipe's name or its parts, and its clock where that is not the paper's.

    Examples
    --------
    >>> title(model_settings("mars-t", options={"readout.clock": "request"}))
    'mars-t, request clock'
    """
    parts = (settings.encoder.name, settings.readout.name, settings.scorer.name)
    names = {(r.encoder.name, r.readout.name, r.scorer.name): name for name, r in RECIPES.items()}
    name = names.get(parts, f"{settings.encoder.name} + {settings.readout.name}")
    on_request = isinstance(settings.readout, MarsSettings) and settings.readout.clock == "request"
    return f"{name}, request clock" if on_request else name


def _known(name: str, table: Mapping[str, object], kind: str) -> str:
    if name not in table:
        extra = ["mars"] if kind == "model" else []
        raise SettingsError(f"unknown {kind} {name!r}; known are {', '.join(extra + list(table))}.")
    return name
