"""What several endpoints take or answer, and the limits of requests. The OpenAPI document is made of schemas."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr

MAX_K = 1_000
MAX_HISTORIES = 64
MAX_HISTORY = 10_000
MAX_EVENTS = 20_000
"""Events of a request in all."""
MAX_POSTED = 1_000
MAX_CANDIDATES = 10_000
MAX_EXPLAINED = 100
"""Items of a request that are explained."""

TEXT = r"^[^\x00-\x1f\x7f-\x9f]+$"
"""Ids as text have no control characters, which not every store takes."""
TextId = Annotated[str, Field(min_length=1, max_length=200, pattern=TEXT)]
Id = (
    Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)]
    | Annotated[StrictStr, Field(min_length=1, max_length=200, pattern=TEXT)]
)
RawId = int | str
"""Ids come back as the kind that the model's log has."""
Moment = (
    Annotated[StrictInt, Field(ge=0, lt=2**63)]
    | Annotated[StrictFloat, Field(ge=0, lt=2**63)]
    | Annotated[StrictStr, Field(min_length=1, max_length=40)]
)


class RequestSchema(BaseModel):
    """What callers send: keys that are not known are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class AnswerSchema(BaseModel):
    """What callers get."""

    model_config = ConfigDict(use_attribute_docstrings=True)


# ---------------------------------------------------------------------- requests


class GivenEvent(RequestSchema):
    """An item that was taken at a time."""

    item: Id = Field(examples=["tea"])
    """Raw id of the item, as in the log that the model was fitted on."""
    time: Moment = Field(examples=["2026-01-31T12:00:00Z"])
    """When: a number in the model's unit (see `GET /v1/model`), of which the whole part counts, or ISO 8601 text, in
    UTC unless it says otherwise."""


class ModelQuery(RequestSchema):
    """Which model answers."""

    model: str | None = Field(None, min_length=1, max_length=200)
    """Name of a model; the first one that is served if not given."""


class UserQuery(ModelQuery):
    """A look at a user."""

    at: str | None = Field(None, min_length=1, max_length=40)
    """The moment of the request: a number in the model's unit, ISO 8601 text, or "now"."""


class SearchQuery(ModelQuery):
    """A search by a part of the id, or of what people call it."""

    search: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f-\x9f]*$")
    """A part of the id (of items also of the title or the category), in any case; nothing finds any."""
    limit: int = Field(20, ge=1, le=100)
    """How many are listed."""


# ----------------------------------------------------------------------- answers


class Head(AnswerSchema):
    """A time scale."""

    head: int
    rate: float
    """Exponent ρ. On the log scale an event of age x hours weighs (1 + x)^(-ρ) of a new one, on the linear scale
    exp(-ρ x)."""
    half_life_seconds: float | None
    """Age at which an event weighs half as much as a new one; null where no number holds it."""
    half_life: str
    """The same in words."""
    gate: float | None
    """Share of the head in the user vector; null where it is not of a history."""


class NamedItem(AnswerSchema):
    """An item, and what people call it."""

    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    category: str | None = None
    """What kind of thing it is; null where the data did not bring a category."""


class ReadEvent(NamedItem):
    """An event as the model saw it."""

    time: int
    age_seconds: float
    """Before the moment from which the model measures."""
    age: str
    """The same in words."""
    weights: list[float] | None
    """What each head gives to it; the weights of a head sum to 1 over all events. Null for models without heads."""


class ReadHistory(AnswerSchema):
    """What the model made of a history."""

    clock: Literal["last-event", "request"] | None
    """Moment from which ages are measured; null for models that do not measure them."""
    now: int
    """That moment, in the model's unit."""
    time_scale: Literal["log", "linear"] | None
    heads: list[Head]
    """Empty for models without heads, and where heads are not time scales."""
    events: list[ReadEvent]
    """The latest events that counted, at most 200, oldest first."""
    earlier: int
    """How many more counted before these."""
