"""Users: their events, their histories, and finding them."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field
from starlette.responses import Response

from marsrec.serve.endpoints.dependencies import PathId, Running, json
from marsrec.serve.histories import History
from marsrec.serve.ids import as_raw, as_text, codes_of, encode
from marsrec.serve.models import Model
from marsrec.serve.refusals import RefusalError, documented
from marsrec.serve.rendering import named_items, read_history
from marsrec.serve.schemas import (
    MAX_POSTED,
    AnswerSchema,
    Id,
    Moment,
    NamedItem,
    RawId,
    ReadHistory,
    RequestSchema,
    SearchQuery,
    TextId,
    UserQuery,
)
from marsrec.serve.store import Removal
from marsrec.serve.worker import RecommendJob

router = APIRouter(prefix="/v1", tags=["users"])


class PostedEvent(RequestSchema):
    """An item that was taken, now or at a time."""

    item: Id = Field(examples=["tea"])
    """Raw id of the item, as in the log that the model was fitted on."""
    time: Moment | None = Field(None, examples=["2026-01-31T12:00:00Z"])
    """When, as for `POST /v1/recommend`, and not after now. Without it the event gets the server's time, and is another
    one each time it is sent."""


class Events(RequestSchema):
    """Events of one user."""

    events: list[PostedEvent] = Field(
        min_length=1,
        max_length=MAX_POSTED,
        fail_fast=True,
        examples=[[{"item": "tea", "time": "2026-01-31T12:00:00Z"}]],
    )
    """In any order."""


class RemovalQuery(RequestSchema):
    """Which stored events to forget; all if nothing is given."""

    item: TextId | None = None
    """Item of one event."""
    time: str | None = Field(None, min_length=1, max_length=40)
    """Time of that event, as it was posted: a number in the model's unit, or ISO 8601 text."""


class Posted(AnswerSchema):
    """What became of posted events, which are durable now."""

    received: int
    new: int
    """How many the store did not have yet."""
    unknown_items: int
    """How many are of items that the default model does not know. They count as soon as a model does."""


class Removed(AnswerSchema):
    """How many stored events were forgotten."""

    removed: int


class UserEvent(NamedItem):
    """An event of a user."""

    time: int
    known: bool
    """Whether the model knows the item."""
    stored: bool
    """Whether it comes from the event store; else it was saved with the model."""


class User(AnswerSchema):
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


class UserFound(AnswerSchema):
    """A user that a search found."""

    user: RawId
    saved: bool
    """Whether events were saved with the model."""
    stored: bool
    """Whether the event store has some."""


class Users(AnswerSchema):
    """What a search found, ids that begin with the text first."""

    users: list[UserFound]


@router.post("/users/{user:path}/events", response_model=Posted, responses=documented(404, 409))
async def post_events(running: Running, user: PathId, body: Events) -> Response:
    """Keep events of a user. They are durable when the answer comes; the same event sent again changes nothing."""
    if user.endswith(("/recommendations", "/events")):
        message = f"{user!r} ends like an address, so that no request could name it."
        raise RefusalError(422, "bad_user", message, "Use an id that does not end in /recommendations or /events.")
    model = running.models.get()
    events = running.posted([(event.item, event.time) for event in body.events])
    new = await running.write(as_text(user, running.user_ids), events)
    running.metrics.events.labels("yes").inc(new)
    running.metrics.events.labels("no").inc(len(events) - new)
    unknown = int((codes_of([event.item for event in body.events], model.recommender.item_ids) == 0).sum())
    return json(Posted(received=len(events), new=new, unknown_items=unknown).model_dump_json().encode())


@router.delete("/users/{user:path}/events", responses=documented(404))
async def remove_events(running: Running, user: PathId, query: Annotated[RemovalQuery, Query()]) -> Removed:
    """Forget one stored event of a user, or all of them. What was saved with a model stays until it is fitted anew."""
    if (query.item is None) != (query.time is None):
        raise RefusalError(
            422, "invalid", "An event is an item and a time.", "Give both, or neither to forget all stored events."
        )
    event = None
    if query.item is not None and query.time is not None:
        event = running.event(query.item, query.time)
    removed = await running.write(as_text(user, running.user_ids), Removal(event))
    running.metrics.removed.inc(removed)
    return Removed(removed=removed)


@router.get("/users", responses=documented(404))
async def find_users(running: Running, query: Annotated[SearchQuery, Query()]) -> Users:
    """Find users, of the model's log and of the store, by a part of their id."""
    model = running.model(query.model)
    needle = query.search.lower()

    def look() -> tuple[list[str], Mapping[str, object]]:
        stored = running.store.search(query.search, query.limit)
        saved = model.users.find(query.search, query.limit)["item"].to_list()
        texts = sorted(
            {*map(str, saved), *stored}, key=lambda text: (not text.lower().startswith(needle), len(text), text)
        )
        return texts[: query.limit], running.store.versions(texts[: query.limit])

    texts, kept = await running.search(look)
    codes = encode(texts, model.sessions.user_ids)
    return Users(
        users=[
            UserFound(user=as_raw(text, running.user_ids), saved=bool(code), stored=text in kept)
            for text, code in zip(texts, codes, strict=True)
        ]
    )


@router.get("/users/{user:path}", responses=documented(404))
async def get_user(running: Running, user: PathId, query: Annotated[UserQuery, Query()]) -> User:
    """A user's history, and what the model made of it: time scales, gate, and the weights of each event."""
    model = running.model(query.model)
    at, since = running.when(model, query.at)
    text = as_text(user, running.user_ids)
    (result,) = await running.explained.submit([RecommendJob(model, user=text, k=0, at=at, since=since, explain=True)])
    assert result.history is not None
    return User(
        user=as_raw(text, running.user_ids),
        model=model.name,
        at=result.at,
        events=result.history.earlier + len(result.history.items),
        history=_events(model, result.history),
        reading=read_history(model, result.reading),
    )


def _events(model: Model, history: History) -> list[UserEvent]:
    columns = history.items, history.times, history.codes, history.stored
    item_ids = model.recommender.item_ids
    named = iter(named_items(model, [int(code) for code in history.codes if code > 0]))
    return [
        UserEvent(
            **(next(named) if code > 0 else {"item": as_raw(item, item_ids)}),
            time=int(time),
            known=code > 0,
            stored=bool(stored),
        )
        for item, time, code, stored in zip(*columns, strict=True)
    ]
