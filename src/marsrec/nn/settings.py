"""The settings of a model: its parts, by name, and what they share."""

from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, SerializeAsAny, ValidationError, model_validator

from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.errors import SettingsError
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.encoders.transformer import TransformerSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.objectives.next_item import NextItemSettings
from marsrec.nn.parts import Part
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.readouts.last import LastSettings
from marsrec.nn.repeats import Repeats
from marsrec.nn.scorers import DotSettings, ScorerSettings
from marsrec.settings import Settings, refusal

KINDS: dict[str, type[Part]] = {
    kind.kind: kind for kind in (EncoderSettings, ReadoutSettings, ScorerSettings, ObjectiveSettings)
}
"""What a model is made of."""


class ModelSettings(Settings):
    """A model: its parts, what it is trained to predict, and what the parts share."""

    encoder: SerializeAsAny[EncoderSettings] = TransformerSettings()
    """What turns embedded events into states."""
    readout: SerializeAsAny[ReadoutSettings] = LastSettings()
    """What turns states into the user vector."""
    scorer: SerializeAsAny[ScorerSettings] = DotSettings()
    """What turns user vectors into item scores."""
    objective: SerializeAsAny[ObjectiveSettings] = NextItemSettings()
    """What it is trained to predict."""
    dim: int = Field(64, ge=1, le=16_384)
    """Width d of embeddings, states and user vectors."""
    length: int = Field(50, ge=1, le=1_000_000)
    """Number of latest events that are looked at."""
    item_std: float = Field(0.02, gt=0)
    """Standard deviation of the item embedding before training."""
    item_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout on the embedded items, the same for encoder and readout."""
    initialisation: Literal["parts", "uniform"] = "parts"
    """"parts" start as each is described. "uniform" then overwrites all parameters, layer norms too, by numbers within
    ± 1 / sqrt(dim), as CORE's published code does."""

    @property
    def origins(self) -> dict[str, dict[str, str]]:
        """Where its foreign parts come from, by kind; see `Part.origin`."""
        return {kind: origin for kind in KINDS if (origin := getattr(self, kind).origin())}

    def build(self, n_items: int, unit: TimeUnit = "s") -> SequenceModel:
        """Make the model, with random weights from torch's global generator."""
        encoder = self.encoder.build(self.dim, self.length)
        tau0 = 3600.0 * PER_SECOND[unit]
        model = SequenceModel(
            n_items,
            self.dim,
            encoder,
            self.readout.build(self.dim, encoder.width, tau0=tau0),
            self.scorer.build(self.dim, n_items),
            item_std=self.item_std,
            item_dropout=self.item_dropout,
            repeats=Repeats(tau0) if self.scorer.repeats else None,
        )
        if self.initialisation == "uniform":
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.uniform_(-(self.dim**-0.5), self.dim**-0.5)
                model.items.weight[0] = 0
        return model

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        encoder, objective = self.encoder, self.objective
        if not objective.trains(encoder):
            goal = encoder.trained_by or objective.name
            trained = " or ".join(
                repr(name) for name, part in EncoderSettings.known().items() if part.trained_by == goal
            )
            raise SettingsError(
                f"encoder {trained} and objective {goal!r} belong together: choose both or neither "
                f'(--set "objective.name={goal}"). Found encoder {encoder.name!r} and objective {objective.name!r}.'
            )
        if not objective.reads_out and not self.readout.plain:
            plain = " or ".join(repr(name) for name, readout in ReadoutSettings.known().items() if readout.plain)
            raise SettingsError(
                f"objective {objective.name!r} trains states and no readout but {plain}; found {self.readout.name!r}. "
                "MARS goes on top of causal encoders."
            )
        return self


def explain_refusal(error: ValidationError, values: Mapping[str, Any]) -> str:
    """Say which of these values of a model's settings were refused and why, by the names that they were given by."""
    return "; ".join(_refused(problem, values) for problem in error.errors())


def _refused(problem: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    *place, leaf = problem["loc"]
    if problem["type"] != "extra_forbidden" or len(place) > 1:
        return refusal(problem)
    if not place:
        kinds = (
            kind for kind, base in KINDS.items() if any(leaf in part.model_fields for part in base.known().values())
        )
        meant = " or ".join(f"{kind}.{leaf}" for kind in kinds)
        known = f"Did you mean {meant}?" if meant else f"It has {', '.join(ModelSettings.model_fields)}."
        return f"{leaf}: a model has no such setting. {known}"
    (kind,) = place
    known_parts, name = KINDS[kind].known(), values[kind]["name"]
    others = " or ".join(repr(other) for other, part in known_parts.items() if leaf in part.model_fields)
    fields = ", ".join(field for field in known_parts[name].model_fields if field != "name") or "none"
    known = f"{kind.capitalize()} {others} has." if others else f"It has {fields}."
    return f"{kind}.{leaf}: {kind} {name!r} has no such setting. {known}"
