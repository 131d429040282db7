"""The settings of a model: its parts, by name, and what they share."""

from typing import Annotated, Literal, Self, get_args

import torch
from pydantic import Field, model_validator

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
from marsrec.settings import Settings

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

ENCODERS: dict[str, type[Settings]] = {part.model_fields["name"].default: part for part in get_args(AnyEncoder)}
READOUTS: dict[str, type[Settings]] = {part.model_fields["name"].default: part for part in get_args(AnyReadout)}


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
