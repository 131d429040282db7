"""What answers look like; the OpenAPI document is made of these and of `schemas`."""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

RawId = int | str
"""Ids come back as the kind that the model's log has."""


class Told(BaseModel):
    """What callers get."""

    model_config = ConfigDict(use_attribute_docstrings=True)


class Posted(Told):
    """What became of posted events, which are durable now."""

    received: int
    new: int
    """How many the store did not have yet."""
    unknown_items: int
    """How many are of items that the default model does not know. They count as soon as a model does."""


class Removed(Told):
    """How many stored events were forgotten."""

    removed: int


class ReadEvent(Told):
    """An event as the model saw it."""

    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    time: int
    age_seconds: float
    """Before the moment from which the model measures."""
    age: str
    """The same in words."""
    weights: list[float] | None
    """What each head gives to it; the weights of a head sum to 1 over all events. Null for models without heads."""


class Head(Told):
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


class ReadHistory(Told):
    """What the model made of a history."""

    clock: Literal["last-event", "request"] | None
    """From when ages are measured; null for models that do not measure them."""
    now: int
    """That moment, in the model's unit."""
    time_scale: Literal["log", "linear"] | None
    heads: list[Head]
    """Empty for models without heads."""
    events: list[ReadEvent]
    """The latest events that counted, at most 200, oldest first."""
    earlier: int
    """How many more counted before these."""


class Explanation(Told):
    """A score, split: last_state + the sum of shares + the sum of earlier = score."""

    last_state: float
    shares: list[list[float]]
    """A row per event of `reading.events`, a column per head."""
    earlier: list[float]
    """Per head, the share of all events before those."""


class Recommended(Told):
    """A recommended item."""

    rank: int
    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    score: float
    explanation: Explanation | None = None
    """Null unless asked for, and where the model's scores do not split."""


class Recommendations(Told):
    """The best items for one history."""

    model: str
    at: int
    """The moment of the request, in the model's unit."""
    source: Literal["model", "popularity"]
    """"popularity" for a history without any known item."""
    items: list[Recommended]
    reading: ReadHistory | None = None
    """With `explain`: what the model made of the history."""


class HistoryRecommendations(Recommendations):
    """The best items for a history of the request."""

    unknown_items: int
    """Events that were skipped because the model does not know their items."""


class RecommendAnswer(Told):
    """An answer per history, in the order of the request."""

    results: list[HistoryRecommendations]
    unknown_candidates: int
    """Candidates that the model does not know."""


class UserRecommendations(Recommendations):
    """The best items for a user."""

    user: RawId


class UserEvent(Told):
    """An event of a user."""

    item: RawId
    title: str | None
    time: int
    known: bool
    """Whether the model knows the item."""
    stored: bool
    """Whether it comes from the event store; else it was saved with the model."""


class User(Told):
    """A user: what happened, and what the model made of it."""

    user: RawId
    model: str
    at: int
    events: int
    """How many there are."""
    history: list[UserEvent]
    """The latest, at most 200, oldest first."""
    reading: ReadHistory | None
    """Null if no item of the history is known."""


class UserFound(Told):
    """A user that a search found."""

    user: RawId
    saved: bool
    """Whether events were saved with the model."""
    stored: bool
    """Whether the event store has some."""


class Users(Told):
    """What a search found, ids that begin with the text first."""

    users: list[UserFound]


class Item(Told):
    """An item of the model."""

    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    count: int
    """How often it was trained on."""


class Items(Told):
    """What a search found, ids that begin with the text first, then the most frequent."""

    items: list[Item]


class SimilarItem(Told):
    """An item that is like another."""

    rank: int
    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    similarity: float
    """Cosine of the items' vectors."""


class SimilarItems(Told):
    """The most similar items."""

    model: str
    item: RawId
    items: list[SimilarItem]


class IndexInfo(Told):
    """The approximate index of a large catalog."""

    lists: int
    """Lists that the items are in."""
    searched: int
    """Lists that are searched for a user."""
    recall: float
    """Share of the true ten best items that it found for a sample of users when it was made."""


class ModelInfo(Told):
    """A model that is served."""

    name: str
    title: str
    """Its recipe."""
    fingerprint: str
    """Tells this model by what its answers depend on."""
    loaded: float
    """When it was loaded, in seconds since 1970."""
    items: int
    users: int
    """Users that were saved with it."""
    unit: Literal["s", "ms", "us", "ns"]
    """Unit of all times."""
    log_end: int
    """Time of the latest event of its log."""
    length: int
    """Events that are looked at, unless `recurrent`."""
    recurrent: bool
    """Whether a user's whole history counts, at a constant cost per event."""
    clock: Literal["last-event", "request"] | None
    """"request" if the moment of the request matters."""
    time_scale: Literal["log", "linear"] | None
    heads: list[Head]
    """Time scales before they are fitted to a user; their gates are null."""
    index: IndexInfo | None
    """Null if all items are ranked exactly."""
    parameters: int
    settings: dict[str, Any]
    metrics: dict[str, Any]
    """Metrics of validation and test, and how they were measured."""
    data: dict[str, Any]
    """Statistics of the log that it was fitted on."""


class ModelAnswer(Told):
    """The model that was asked for, and the names of all."""

    model: ModelInfo
    at: Literal["now", "end of the log"]
    """When requests that name no moment are made, unless the latest event is later."""
    models: list[str]


class Reloaded(Told):
    """The models that were loaded anew."""

    reloaded: list[str]


class State(Told):
    """How the server is."""

    status: Literal["ok"]
