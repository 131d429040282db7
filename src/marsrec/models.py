"""The recipe table, and the rule that picks the backbone of MARS.

A named model is a recipe: an encoder, a readout, a scorer and an objective. A new model is a new file, a name in the
union in `marsrec.nn.settings`, and one line here.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

from pydantic import Field, ValidationError

from marsrec.errors import SettingsError
from marsrec.nn.encoders.bert import BertSettings
from marsrec.nn.encoders.echo import EchoSettings
from marsrec.nn.encoders.frequency import FrequencySettings
from marsrec.nn.encoders.gru import GruSettings
from marsrec.nn.encoders.mamba import MambaSettings
from marsrec.nn.encoders.sigma import SigmaSettings
from marsrec.nn.encoders.time_interval import TimeIntervalSettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.objectives.contrast import ContrastSettings
from marsrec.nn.objectives.masked_items import MaskedItemsSettings
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.readouts.core import CoreSettings
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.readouts.mars import MarsSettings
from marsrec.nn.readouts.narm import NarmSettings
from marsrec.nn.scorers import BiasedSettings, CosineSettings, DotSettings
from marsrec.nn.settings import (
    ENCODERS,
    READOUTS,
    EncoderSettings,
    ModelSettings,
    ObjectiveSettings,
    ReadoutSettings,
    ScorerSettings,
    explain_refusal,
)
from marsrec.settings import Settings

DENSE_FROM = 50.0
"""Average training-sequence length from which data count as dense (τ in the paper's Eq. select)."""

SPARSE_LENGTH = 50
"""How many latest events count on sparse data."""


class Recipe(Settings):
    """A named model's parts."""

    encoder: EncoderSettings = TransformerSettings()
    readout: ReadoutSettings = LastSettings()
    scorer: ScorerSettings = DotSettings()
    objective: ObjectiveSettings = NextItemSettings()
    item_std: float = 0.02
    item_dropout: float = 0.0
    sparse_dropout: float = 0.5
    """The encoder's dropout on sparse data, unless the encoder names its own for all data."""
    targets_per_batch: int = 2048
    """Targets of a step, unless training says otherwise."""
    time: str = "order of events"
    """What the model sees of time."""
    published: dict[str, Any] = Field(default_factory=dict)
    """Options that reproduce what the published code does where ours follows the paper instead."""


RECIPES: dict[str, Recipe] = {
    "gru4rec": Recipe(encoder=GruSettings(dropout=0.3)),
    "narm": Recipe(encoder=GruSettings(dropout=0.25, project=False), readout=NarmSettings()),
    "bert4rec": Recipe(
        encoder=BertSettings(dropout=0.2),
        scorer=BiasedSettings(),
        objective=MaskedItemsSettings(),
        published={"encoder.published": True, "objective.published": True},
    ),
    "sasrec": Recipe(),
    "tisasrec": Recipe(
        encoder=TimeIntervalSettings(), time="intervals between events", published={"encoder.scale": "raw"}
    ),
    "fearec": Recipe(
        encoder=FrequencySettings(),
        objective=ContrastSettings(),
        targets_per_batch=256,  # its authors': its contrast makes users alike at first, and it takes steps to undo it
        published={"encoder.published": True, "objective": NextItemSettings().model_dump()},
    ),
    "core": Recipe(
        readout=CoreSettings(),
        scorer=CosineSettings(),
        item_std=0.072,  # with cosines it decides how fast items turn: as wide as uniform within ± 1 / sqrt(64)
        item_dropout=0.2,
        published={"initialisation": "uniform"},
    ),
    "mamba4rec": Recipe(
        encoder=MambaSettings(layers=1),
        sparse_dropout=0.4,  # its authors' on Amazon's data
        published={"encoder.initialisation": "published"},
    ),
    "echomamba4rec": Recipe(
        encoder=EchoSettings(),
        sparse_dropout=0.4,  # as Mamba4Rec, whose settings it takes over
        published={"encoder.published": True, "encoder.initialisation": "published"},
    ),
    "sigma": Recipe(
        encoder=SigmaSettings(dropout=0.2),  # its authors', on all data
        published={"encoder.published": True, "encoder.initialisation": "published"},
    ),
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
        f"--model {'mars-t' if settings.encoder.name == 'mamba' else 'mars-m'}"
        f"{' or --heads K' if heads else ''} takes another."
    )


def model_settings(
    model: str = "mars",
    average_length: float = 0.0,
    *,
    encoder: str | None = None,
    readout: str | None = None,
    options: Mapping[str, Any] | None = None,
    published: bool = False,
) -> ModelSettings:
    """Settings of a named model, fitted to the density of the data and changed by options.

    Parameters
    ----------
    model : str
        A recipe's name, or "mars" to let the backbone rule choose.
    average_length : float
        Average training-sequence length. From 50 on data count as dense: length 200, dropout 0.2 and 8 MARS heads
        instead of 50, 0.5 and 4, the paper's values; and no dropout on the user vector instead of 0.2, which the paper
        does not mention. A recipe that names its own dropout keeps it.
    encoder, readout : str, optional
        Replace one part of the recipe by another.
    options : mapping, optional
        Values by dotted name, such as {"readout.heads": 8, "length": 100}.
    published : bool
        Do what the published code of a baseline does where ours follows its paper instead.

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
        "objective": recipe.objective.model_dump(),
        "item_std": recipe.item_std,
        "item_dropout": recipe.item_dropout,
        "length": 200 if dense else SPARSE_LENGTH,
    }
    if published and not recipe.published:
        raise SettingsError(f"{name}: has no other variant under published; docs/models.md says where it differs.")
    if published and encoder is not None:
        raise SettingsError(f"published means the encoder of {name}, not {encoder!r}: give one of them.")
    if encoder is not None:
        values["encoder"] = ENCODERS[_known(encoder, ENCODERS, "encoder")]().model_dump()
    if readout is not None:
        values["readout"] = READOUTS[_known(readout, READOUTS, "readout")]().model_dump()
    if encoder is not None and (encoder == "bert") != (values["objective"]["name"] == "masked items"):
        chosen = MaskedItemsSettings() if encoder == "bert" else NextItemSettings()
        values["objective"] = chosen.model_dump()
    if not has_own_dropout(name, encoder):
        values["encoder"]["dropout"] = 0.2 if dense else sparse_dropout(name, encoder)
    if values["readout"]["name"] == "mars":
        values["readout"]["heads"] = 8 if dense else 4
        if dense:
            values["readout"]["dropout"] = 0.0
    if values["encoder"]["name"] == "gru":  # states as wide as the item embedding, where these become users
        values["encoder"]["project"] = values["readout"]["name"] != "narm"
    for path, value in {**(recipe.published if published else {}), **(options or {})}.items():
        *parents, leaf = path.split(".")
        place: Any = values
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise SettingsError(f"option {path!r}: the parts of a model are encoder, readout, scorer and objective.")
        place[leaf] = deepcopy(value)  # a later option may write into it
    try:
        return ModelSettings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(f"model settings: {explain_refusal(error)}") from None


def sparse_dropout(name: str, encoder: str | None) -> float:
    """The encoder's dropout on sparse data: the recipe's, as long as it has its own encoder."""
    return RECIPES[name].sparse_dropout if encoder is None and name in RECIPES else Recipe().sparse_dropout


def has_own_dropout(name: str, encoder: str | None = None) -> bool:
    """Whether a recipe names its encoder's dropout; the others take what the density of the data suggests."""
    if encoder is not None:
        return encoder == "gru"
    return name in RECIPES and "dropout" in RECIPES[name].encoder.model_fields_set


def targets_per_batch(settings: ModelSettings) -> int:
    """How many targets a step has unless training says otherwise: as many as the recipe of these parts says.

    Examples
    --------
    >>> targets_per_batch(model_settings("fearec")), targets_per_batch(model_settings("fearec", published=True))
    (256, 2048)
    """
    same = (recipe for recipe in RECIPES.values() if parts(recipe) == parts(settings))
    return next(same, Recipe()).targets_per_batch


def title(settings: ModelSettings) -> str:
    """What a model is called: its recipe's name or its parts, and in what its MARS differs from the paper's.

    Examples
    --------
    >>> title(model_settings("mars-t", options={"readout.clock": "request"}))
    'mars-t, request clock'
    >>> title(model_settings("mars-m", options={"readout.values": True}))
    'mars-m, values'
    >>> title(model_settings("mars-m", readout="last"))
    'mamba4rec, 2 layers'
    >>> title(model_settings("fearec", encoder="gru", readout="mars"))
    'gru + mars + next item + contrast'
    """
    chosen, values = parts(settings), settings.model_dump()
    names = {parts(recipe): name for name, recipe in RECIPES.items()}
    usual = ("", "", "dot", "next item")
    published = next((name for name, recipe in RECIPES.items() if _is_published(recipe, chosen, values)), None)
    name = published or names.get(chosen) or " + ".join(p for p, u in zip(chosen, usual, strict=True) if p != u)
    if name in RECIPES and settings.encoder.layers != RECIPES[name].encoder.layers:
        name += f", {settings.encoder.layers} layer{'' if settings.encoder.layers == 1 else 's'}"
    name += ", published" if published else ""
    if isinstance(settings.readout, MarsSettings):
        name += ", request clock" if settings.readout.clock == "request" else ""
        name += ", values" if settings.readout.values else ""
    return name


def _is_published(recipe: Recipe, chosen: tuple[str, ...], values: dict[str, Any]) -> bool:
    """Whether a model has all that a recipe changes under `published`, which may be its objective."""
    objective = recipe.published.get("objective", {}).get("name", recipe.objective.name)
    if not recipe.published or (*parts(recipe)[:3], objective) != chosen:
        return False
    return all(reduce(getitem, path.split("."), values) == value for path, value in recipe.published.items())


def decisive(settings: ModelSettings) -> str:
    """All that makes a model what it is, as a text to be digested.

    What has its default is left out, so that a setting that comes to exist later does not make it another model. A
    default that comes to mean something else needs another name.
    """
    return "\n".join([*parts(settings), settings.model_dump_json(exclude_defaults=True)])


def parts(model: ModelSettings | Recipe) -> tuple[str, str, str, str]:
    """Names of encoder, readout, scorer and objective."""
    return model.encoder.name, model.readout.name, model.scorer.name, model.objective.name


def _known(name: str, table: Mapping[str, object], kind: str) -> str:
    if name not in table:
        extra = ["mars"] if kind == "model" else []
        raise SettingsError(f"unknown {kind} {name!r}; known are {', '.join(extra + list(table))}.")
    return name
