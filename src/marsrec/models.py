"""The recipe table, and the rule that picks the backbone of MARS.

A named model is a recipe: an encoder, a readout, a scorer and an objective. A new part is a new file; a combination of
parts that has a name of its own is an entry here.
"""

from collections.abc import Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any, TypeAlias, TypeVar

from pydantic import Field, SerializeAsAny, ValidationError

from marsrec.errors import SettingsError
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.parts import Part
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
from marsrec.nn.settings import KINDS, ModelSettings, explain_refusal
from marsrec.settings import Settings, explain_validation

P = TypeVar("P", bound=Part)
Choice: TypeAlias = str | Mapping[str, Any] | P | None
"""A part by its name, or by its settings; None leaves the recipe's."""

DENSE_FROM = 50.0
"""Average training-sequence length from which data count as dense (τ in the paper's Eq. select)."""

SPARSE_LENGTH = 50
"""How many latest events count on sparse data."""


_USUAL = ModelSettings()


class Recipe(Settings):
    """A named model's parts."""

    encoder: SerializeAsAny[EncoderSettings] = _USUAL.encoder
    readout: SerializeAsAny[ReadoutSettings] = _USUAL.readout
    scorer: SerializeAsAny[ScorerSettings] = _USUAL.scorer
    objective: SerializeAsAny[ObjectiveSettings] = _USUAL.objective
    item_std: float = 0.02
    item_dropout: float = 0.0
    sparse_dropout: float | None = None
    """The encoder's dropout on sparse data, where it is another than the one that suits the encoder elsewhere."""
    targets_per_batch: int = 2048
    """Targets of a step, unless training says otherwise."""
    time: str = "order of events"
    """What the model sees of time."""
    published: dict[str, Any] = Field(default_factory=dict)
    """Options that reproduce what the published code does where ours follows the paper instead."""


RECIPES: dict[str, Recipe] = {
    "gru4rec": Recipe(encoder={"name": "gru", "dropout": 0.3}),
    "narm": Recipe(encoder={"name": "gru", "dropout": 0.25}, readout="narm"),
    "bert4rec": Recipe(
        encoder={"name": "bert", "dropout": 0.2},
        scorer="biased",
        objective="masked items",
        published={"encoder.published": True, "objective.published": True},
    ),
    "sasrec": Recipe(),
    "tisasrec": Recipe(encoder="time-interval", time="intervals between events", published={"encoder.scale": "raw"}),
    "fearec": Recipe(
        encoder="frequency",
        objective="next item + contrast",
        targets_per_batch=256,  # its authors': its contrast makes users alike at first, and it takes steps to undo it
        published={"encoder.published": True, "objective": {"name": "next item"}},
    ),
    "core": Recipe(
        readout="core",
        scorer="cosine",
        item_std=0.072,  # with cosines it decides how fast items turn: as wide as uniform within ± 1 / sqrt(64)
        item_dropout=0.2,
        published={"initialisation": "uniform"},
    ),
    "mamba4rec": Recipe(
        encoder={"name": "mamba", "layers": 1},
        sparse_dropout=0.4,  # its authors' on Amazon's data
        published={"encoder.initialisation": "published"},
    ),
    "echomamba4rec": Recipe(
        encoder="echo",
        sparse_dropout=0.4,  # as Mamba4Rec, whose settings it takes over
        published={"encoder.published": True, "encoder.initialisation": "published"},
    ),
    "sigma": Recipe(
        encoder={"name": "sigma", "dropout": 0.2},  # its authors', on all data
        published={"encoder.published": True, "encoder.initialisation": "published"},
    ),
    "mars-t": Recipe(readout="mars", time="real elapsed time"),
    "mars-m": Recipe(encoder={"name": "mamba", "layers": 2}, readout="mars", time="real elapsed time"),
    "hawkes-t": Recipe(readout="hawkes", time="real elapsed time"),
    "hawkes-m": Recipe(encoder={"name": "mamba", "layers": 2}, readout="hawkes", time="real elapsed time"),
}

BACKBONES = "mars-t", "mars-m"
"""What the backbone rule takes for sparse and for dense data."""


def backbone(average_length: float) -> str:
    """Name of the recipe that the backbone rule takes: mars-t for sparse data, mars-m for dense data.

    Examples
    --------
    >>> backbone(8.9)
    'mars-t'
    >>> backbone(165.5)
    'mars-m'
    """
    return BACKBONES[average_length >= DENSE_FROM]


def rule(average_history: float, average_training: float, settings: ModelSettings) -> str:
    """How the backbone rule came to a model, and how to take another."""
    dense = average_training >= DENSE_FROM
    heads = getattr(settings.readout, "heads", None)
    name = title(settings).removesuffix(", repeats")
    other = next(name for name in BACKBONES if RECIPES[name].encoder.name != settings.encoder.name)
    return (
        f"Average length {average_history:.1f} events, {average_training:.1f} of them for training, which is "
        f"{f'{DENSE_FROM:.0f} or more' if dense else f'below {DENSE_FROM:.0f}'}: {name}"
        f"{f' with {heads} heads' if heads else ''}{', and repeats are scored' if settings.scorer.repeats else ''}. "
        f"--model {other}{' or --heads K' if heads else ''} takes another."
    )


def model_settings(
    model: str = "mars",
    average_length: float = 0.0,
    *,
    encoder: Choice[EncoderSettings] = None,
    readout: Choice[ReadoutSettings] = None,
    scorer: Choice[ScorerSettings] = None,
    objective: Choice[ObjectiveSettings] = None,
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
        does not mention. Each part says what suits it; a value that a recipe or a caller gives is kept.
    encoder, readout, scorer, objective : str, mapping or settings, optional
        Replace one part of the recipe by another: its name, or its settings.
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
    recipe = RECIPES[_known(name)]
    dense = average_length >= DENSE_FROM
    if published and not recipe.published:
        raise SettingsError(f"{name}: has no other variant under published; docs/models.md says where it differs.")
    choices = {"encoder": encoder, "readout": readout, "scorer": scorer, "objective": objective}
    given = {kind: _part(KINDS[kind], choice) for kind, choice in choices.items() if choice is not None}
    if published and "encoder" in given:
        raise SettingsError(f"published means the encoder of {name}, not {given['encoder'].name!r}: give one of them.")
    chosen = recipe.model_copy(update=given)
    if objective is None and not chosen.objective.trains(chosen.encoder):
        goal = chosen.encoder.trained_by or _USUAL.objective.name
        chosen = chosen.model_copy(update={"objective": _part(KINDS["objective"], goal)})
    values: dict[str, Any] = {
        **{kind: _suited(getattr(chosen, kind), dense) for kind in KINDS},
        "item_std": recipe.item_std,
        "item_dropout": recipe.item_dropout,
        "length": 200 if dense else SPARSE_LENGTH,
    }
    values["encoder"] |= _unset(chosen.encoder, chosen.encoder.suited_to_readout(chosen.readout))
    if not dense and encoder is None and recipe.sparse_dropout is not None:
        values["encoder"]["dropout"] = recipe.sparse_dropout
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
        raise SettingsError(f"model settings: {explain_refusal(error, values)}") from None


def _part(kind: type[P], choice: str | Mapping[str, Any] | P) -> P:
    try:
        return kind.model_validate(choice)
    except ValidationError as error:
        raise SettingsError(f"{kind.kind}: {explain_validation(error)}") from None


def _suited(part: Part, dense: bool) -> dict[str, Any]:
    """The settings of a part, with what suits the data where nothing was given."""
    return part.model_dump() | _unset(part, part.suited_to_data(dense))


def _unset(part: Part, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values of the fields that were not given."""
    return {field: value for field, value in values.items() if field not in part.model_fields_set}


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
    unsaid = ("", "", "dot", "next item")
    published = next((name for name, recipe in RECIPES.items() if _is_published(recipe, chosen, values)), None)
    name = published or names.get(chosen) or " + ".join(p for p, u in zip(chosen, unsaid, strict=True) if p != u)
    usual = RECIPES.get(name, settings)
    notes = [
        *settings.encoder.differences(usual.encoder),
        *["published"] * (published is not None),
        *settings.readout.differences(usual.readout),
        *settings.scorer.differences(usual.scorer),
    ]
    return ", ".join([name, *notes])


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


def _known(model: str) -> str:
    if model not in RECIPES:
        raise SettingsError(f"unknown model {model!r}; known are {', '.join(['mars', *RECIPES])}.")
    return model
