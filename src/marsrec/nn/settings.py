"""The settings of a model: its parts, by name, and what they share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

import torch
from pydantic import Field, ValidationError, model_validator

from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.errors import SettingsError
from marsrec.nn.encoders.bert import BertSettings
from marsrec.nn.encoders.echo import EchoSettings
from marsrec.nn.encoders.frequency import FrequencySettings
from marsrec.nn.encoders.gru import GruSettings
from marsrec.nn.encoders.mamba import MambaSettings
from marsrec.nn.encoders.sigma import SigmaSettings
from marsrec.nn.encoders.time_interval import TimeIntervalSettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.contrast import ContrastSettings
from marsrec.nn.objectives.masked_items import MaskedItemsSettings
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.readouts.core import CoreSettings
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.readouts.mars import MarsSettings
from marsrec.nn.readouts.narm import NarmSettings
from marsrec.nn.scorers import BiasedSettings, CosineSettings, DotSettings
from marsrec.settings import Settings, refusal

AnyEncoder = (
    GruSettings
    | TransformerSettings
    | TimeIntervalSettings
    | BertSettings
    | FrequencySettings
    | MambaSettings
    | EchoSettings
    | SigmaSettings
)
AnyReadout = LastSettings | NarmSettings | CoreSettings | MarsSettings
AnyScorer = DotSettings | BiasedSettings | CosineSettings
AnyObjective = NextItemSettings | MaskedItemsSettings | ContrastSettings

EncoderSettings = Annotated[AnyEncoder, Field(discriminator="name")]
ReadoutSettings = Annotated[AnyReadout, Field(discriminator="name")]
ScorerSettings = Annotated[AnyScorer, Field(discriminator="name")]
ObjectiveSettings = Annotated[AnyObjective, Field(discriminator="name")]

PARTS: dict[str, dict[str, type[Settings]]] = {
    part: {kind.model_fields["name"].default: kind for kind in get_args(kinds)}
    for part, kinds in (
        ("encoder", AnyEncoder),
        ("readout", AnyReadout),
        ("scorer", AnyScorer),
        ("objective", AnyObjective),
    )
}
"""The kinds of each part of a model, by name."""
ENCODERS, READOUTS = PARTS["encoder"], PARTS["readout"]


class ModelSettings(Settings):
    """A model: its parts, what it is trained to predict, and what the parts share."""

    encoder: EncoderSettings = TransformerSettings()
    """What turns embedded events into states."""
    readout: ReadoutSettings = LastSettings()
    """What turns states into the user vector."""
    scorer: ScorerSettings = DotSettings()
    """What turns user vectors into item scores."""
    objective: ObjectiveSettings = NextItemSettings()
    """What it is trained to predict."""
    dim: int = Field(64, ge=1)
    """Width d of embeddings, states and user vectors."""
    length: int = Field(50, ge=1)
    """Number of latest events that are looked at."""
    item_std: float = Field(0.02, gt=0)
    """Standard deviation of the item embedding before training."""
    item_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embedded items, the same for encoder and readout."""
    initialisation: Literal["parts", "uniform"] = "parts"
    """"parts" start as each is described. "uniform" then overwrites all parameters, layer norms too, by numbers within
    ± 1 / sqrt(dim), as CORE's published code does."""

    def build(self, n_items: int, unit: TimeUnit = "s") -> SequenceModel:
        """Make the model, with random weights from torch's global generator."""
        encoder = self.encoder.build(self.dim, self.length)
        model = SequenceModel(
            n_items,
            self.dim,
            encoder,
            self.readout.build(self.dim, encoder.width, tau0=3600.0 * PER_SECOND[unit]),
            self.scorer.build(self.dim, n_items),
            item_std=self.item_std,
            item_dropout=self.item_dropout,
        )
        if self.initialisation == "uniform":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.uniform_(-(self.dim**-0.5), self.dim**-0.5)
                model.items.weight[0] = 0
        return model

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        masked = self.objective.name == "masked items"
        if (self.encoder.name == "bert") != masked:
            raise SettingsError(
                'encoder "bert" and objective "masked items" belong together: choose both or neither '
                '(--set "objective.name=masked items").'
            )
        if masked and self.readout.name != "last":
            raise SettingsError(
                f'objective "masked items" trains the states of masked slots and no readout but "last"; '
                f"found {self.readout.name!r}. MARS goes on top of causal encoders."
            )
        return self


def explain_refusal(error: ValidationError) -> str:
    """Say which settings of a model were refused and why, by the names that they were given by."""
    return "; ".join(map(_refused, error.errors()))


def _refused(problem: Mapping[str, Any]) -> str:
    *place, leaf = problem["loc"]
    if problem["type"] != "extra_forbidden":
        return refusal({**problem, "loc": (*place[:1], *place[2:], leaf)})  # without the kind of the part
    if not place:
        parts = (part for part, kinds in PARTS.items() if any(leaf in kind.model_fields for kind in kinds.values()))
        meant = " or ".join(f"{part}.{leaf}" for part in parts)
        known = f"Did you mean {meant}?" if meant else f"It has {', '.join(ModelSettings.model_fields)}."
        return f"{leaf}: a model has no such setting. {known}"
    part, name = place
    others = " or ".join(repr(other) for other, kind in PARTS[part].items() if leaf in kind.model_fields)
    fields = ", ".join(field for field in PARTS[part][name].model_fields if field != "name") or "none"
    known = f"{part.capitalize()} {others} has." if others else f"It has {fields}."
    return f"{part}.{leaf}: {part} {name!r} has no such setting. {known}"
