"""What requests look like, with their limits; the OpenAPI document is made of these and of `answer_schemas`."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictFloat, StrictInt, StrictStr, model_validator
from pydantic_core import PydanticCustomError

MAX_K = 1_000
MAX_HISTORIES = 64
MAX_HISTORY = 10_000
MAX_EVENTS = 20_000
"""Events of a request in all."""
MAX_POSTED = 1_000
MAX_CANDIDATES = 10_000
MAX_EXPLAINED = 100
"""Items of a request that are explained."""
SHOWN_EVENTS = 200
"""Events of a history that an answer lists, the latest; what comes before is summed up."""


Text = Field(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")
"""Ids as text have no control characters, which not every store takes."""
Id = Annotated[StrictInt, Field(ge=-(2**63), lt=2**63)] | Annotated[StrictStr, Text]
Moment = (
    Annotated[StrictInt, Field(ge=0, lt=2**63)]
    | Annotated[StrictFloat, Field(ge=0, lt=2**63)]
    | Annotated[StrictStr, Field(min_length=1, max_length=40)]
)


class Given(BaseModel):
    """What callers send: keys that are not known are errors."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


class GivenEvent(Given):
    """An item that was taken at a time."""

    item: Id = Field(examples=["tea"])
    """Raw id of the item, as in the log that the model was fitted on."""
    time: Moment = Field(examples=["2026-01-31T12:00:00Z"])
    """When: a number in the model's unit (see `GET /v1/model`), of which the whole part counts, or ISO 8601 text, in
    UTC unless it says otherwise."""


class Events(Given):
    """Events of one user."""

    events: list[GivenEvent] = Field(
        min_length=1, max_length=MAX_POSTED, examples=[[{"item": "tea", "time": "2026-01-31T12:00:00Z"}]]
    )
    """In any order."""


GivenHistory = Annotated[list[GivenEvent], Field(max_length=MAX_HISTORY)]


class RecommendRequest(Given):
    """Histories, and what to recommend for them. Exactly one of `history` and `histories` is given."""

    history: GivenHistory | None = None
    """The events of one user, in any order."""
    histories: Annotated[list[GivenHistory], Field(min_length=1, max_length=MAX_HISTORIES)] | None = None
    """The events of many users, at most 20,000 in all."""
    k: int = Field(10, ge=1, le=MAX_K, strict=True)
    """How many items each."""
    at: Moment | None = None
    """The moment of the request, as `time`, or "now". By default the end of the log, or now (see `at` of
    `GET /v1/model`), but not before the latest event."""
    mask_seen: bool = Field(True, strict=True)
    """Leave out items of the history."""
    candidates: Annotated[list[Id], Field(min_length=1, max_length=MAX_CANDIDATES)] | None = None
    """Recommend only these items."""
    explain: bool = Field(False, strict=True)
    """Split each score into past events and time scales; for at most 100 items in all."""

    @model_validator(mode="before")
    @classmethod
    def _not_too_many(cls, given: Any) -> Any:
        """Count the events before each of them is looked at."""
        histories = given.get("histories") if isinstance(given, dict) else None
        if isinstance(histories, list):
            events = sum(len(history) for history in histories if isinstance(history, list))
            if events > MAX_EVENTS:
                raise PydanticCustomError("too_many_events", "more than 20,000 events in all")
        return given


class ModelQuery(Given):
    """Which model answers."""

    model: str | None = Field(None, min_length=1, max_length=200)
    """Name of a model; the first one that is served if not given."""


class UserQuery(ModelQuery):
    """A look at a user."""

    at: str | None = Field(None, min_length=1, max_length=40)
    """The moment of the request: a number in the model's unit, ISO 8601 text, or "now"."""


class RemovalQuery(Given):
    """Which stored events to forget; all if nothing is given."""

    item: Annotated[str, Text] | None = None
    """Item of one event."""
    time: str | None = Field(None, min_length=1, max_length=40)
    """Time of that event, as it was posted: a number in the model's unit, or ISO 8601 text."""


class RecommendationsQuery(UserQuery):
    """What to recommend to a user."""

    k: int = Field(10, ge=1, le=MAX_K)
    """How many items."""
    mask_seen: bool = True
    """Leave out items of the history."""
    explain: bool = False
    """Split each score into past events and time scales; for k up to 100."""


class SearchQuery(ModelQuery):
    """A search by a part of the id."""

    search: str = Field("", max_length=200, pattern=r"^[^\x00-\x1f\x7f]*$")
    """A part of the id, in any case; nothing finds any."""
    limit: int = Field(20, ge=1, le=100)
    """How many are told."""


class SimilarQuery(ModelQuery):
    """How many similar items."""

    k: int = Field(10, ge=1, le=MAX_K)
    """How many items."""
