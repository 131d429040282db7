"""The addresses of the service."""

from collections.abc import Callable, Mapping
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from marsrec.serve import answer_schemas as told
from marsrec.serve import schemas
from marsrec.serve.jobs import Asked, Similar
from marsrec.serve.live import as_raw, as_text, encode
from marsrec.serve.refusals import RefusalError, documented
from marsrec.serve.rendering import item_titles, model_info, raw_items, read_history, recommended, user_events
from marsrec.serve.service import Service
from marsrec.serve.store import Removal

api = APIRouter(prefix="/v1")
state = APIRouter()


def service(request: Request) -> Service:
    """The service that an application runs."""
    running: Service = request.app.state.service
    return running


Running = Annotated[Service, Depends(service)]
Text = Annotated[str, Path(min_length=1, max_length=200, pattern=r"^[^\x00-\x1f\x7f]+$")]


@api.post("/recommend", response_model=told.RecommendAnswer, responses=documented(404), tags=["recommend"])
async def recommend(
    running: Running, body: schemas.RecommendRequest, query: Annotated[schemas.ModelQuery, Query()]
) -> Response:
    """Recommend items for histories in the request: the model looks at the latest events of each, `length` of them."""
    if (body.history is None) == (body.histories is None):
        raise RefusalError(422, "invalid", "Give either history or histories.", "Leave one of them out.")
    histories = [body.history] if body.history is not None else body.histories or []
    _check_explained(body.explain, body.k * len(histories))
    model = running.model(query.model)

    def jobs() -> tuple[list[tuple[Asked, int]], int]:
        candidates, unknown = running.candidates(model, body.candidates)
        at, since = running.when(model, body.at)
        asked = [
            running.asked(
                model,
                running.events(history),
                k=body.k,
                at=at,
                since=since,
                mask_seen=body.mask_seen,
                candidates=candidates,
                explain=body.explain,
            )
            for history in histories
        ]
        return asked, unknown

    asked, unknown = await run_in_threadpool(jobs)
    answers = await (running.explained if body.explain else running.answers).ask([job for job, _ in asked])

    def render() -> told.RecommendAnswer:
        results = [
            told.HistoryRecommendations(
                model=model.name,
                at=answer.at,
                source=answer.source,
                unknown_items=skipped,
                items=recommended(model, answer),
                reading=None if answer.reading is None else read_history(model, answer.reading),
            )
            for answer, (_, skipped) in zip(answers, asked, strict=True)
        ]
        return told.RecommendAnswer(results=results, unknown_candidates=unknown)

    return await _written(render)


async def _written(render: Callable[[], BaseModel]) -> Response:
    """An answer as JSON, made in another thread: others need not wait for a long one."""
    return Response(await run_in_threadpool(lambda: render().model_dump_json()), media_type="application/json")


def _check_explained(explain: bool, items: int) -> None:
    if explain and items > schemas.MAX_EXPLAINED:
        message = f"{items:,} items are more than the {schemas.MAX_EXPLAINED} that one request explains."
        raise RefusalError(422, "too_much", message, "Ask for fewer items, or without explain.")


@api.post("/users/{user:path}/events", responses=documented(404, 409), tags=["users"])
async def post_events(running: Running, user: Text, body: schemas.Events) -> told.Posted:
    """Keep events of a user. They are durable when the answer comes; the same event sent again changes nothing."""
    if user.endswith(("/recommendations", "/events")):
        message = f"{user!r} ends like an address, and could not be asked for."
        raise RefusalError(422, "bad_user", message, "Use an id that ends neither in /recommendations nor in /events.")
    model = running.models.get()
    events = running.events(body.events)
    (new,) = await running.writes.ask([(as_text(user, running.user_ids), events)])
    running.metrics.events.labels("yes").inc(new)
    running.metrics.events.labels("no").inc(len(events) - new)
    codes = encode([event.item for event in events], model.recommender.item_ids)
    return told.Posted(received=len(events), new=new, unknown_items=int((codes == 0).sum()))


@api.delete("/users/{user:path}/events", responses=documented(404), tags=["users"])
async def remove_events(running: Running, user: Text, query: Annotated[schemas.RemovalQuery, Query()]) -> told.Removed:
    """Forget one stored event of a user, or all of them. What was saved with a model stays until it is fitted anew."""
    if (query.item is None) != (query.time is None):
        raise RefusalError(
            422, "invalid", "An event is an item and a time.", "Give both, or neither to forget all stored events."
        )
    event = None
    if query.item is not None and query.time is not None:
        event = running.event(query.item, query.time)
    (removed,) = await running.writes.ask([(as_text(user, running.user_ids), Removal(event))])
    running.metrics.removed.inc(removed)
    return told.Removed(removed=removed)


@api.get("/users", tags=["users"], responses=documented(404))
async def find_users(running: Running, query: Annotated[schemas.SearchQuery, Query()]) -> told.Users:
    """Find users, of the model's log and of the store, by a part of their id."""
    model = running.model(query.model)
    needle = query.search.lower()

    def look() -> tuple[list[str], Mapping[str, object]]:
        stored = running.store.search(query.search, query.limit)
        saved = model.users.find(query.search, query.limit)["id"].to_list()
        texts = sorted(
            {*map(str, saved), *stored}, key=lambda text: (not text.lower().startswith(needle), len(text), text)
        )
        return texts[: query.limit], running.store.versions(texts[: query.limit])

    texts, kept = await running.search(look)
    codes = encode(texts, model.sessions.user_ids)
    return told.Users(
        users=[
            told.UserFound(user=as_raw(text, running.user_ids), saved=bool(code), stored=text in kept)
            for text, code in zip(texts, codes, strict=True)
        ]
    )


@api.get(
    "/users/{user:path}/recommendations",
    response_model=told.UserRecommendations,
    responses=documented(404),
    tags=["users"],
)
async def recommend_to_user(
    running: Running, user: Text, query: Annotated[schemas.RecommendationsQuery, Query()]
) -> Response:
    """Recommend items to a user, from what was saved with the model and what the store has."""
    _check_explained(query.explain, query.k)
    model = running.model(query.model)
    text = as_text(user, running.user_ids)
    at, since = running.when(model, query.at)
    job = Asked(
        model,
        user=text,
        k=query.k,
        at=at,
        since=since,
        mask_seen=query.mask_seen,
        explain=query.explain,
    )
    (answer,) = await (running.explained if query.explain else running.users).ask([job])
    return await _written(
        lambda: told.UserRecommendations(
            user=as_raw(text, running.user_ids),
            model=model.name,
            at=answer.at,
            source=answer.source,
            items=recommended(model, answer),
            reading=None if answer.reading is None else read_history(model, answer.reading),
        )
    )


@api.get("/users/{user:path}", responses=documented(404), tags=["users"])
async def get_user(running: Running, user: Text, query: Annotated[schemas.UserQuery, Query()]) -> told.User:
    """A user's history, and what the model made of it: time scales, gate, and the weights of each event."""
    model = running.model(query.model)
    at, since = running.when(model, query.at)
    text = as_text(user, running.user_ids)
    job = Asked(model, user=text, k=0, at=at, since=since, explain=True)
    (answer,) = await running.explained.ask([job])
    assert answer.history is not None
    return told.User(
        user=as_raw(text, running.user_ids),
        model=model.name,
        at=answer.at,
        events=answer.history.earlier + len(answer.history.items),
        history=user_events(model, answer.history),
        reading=None if answer.reading is None else read_history(model, answer.reading),
    )


@api.get("/items", responses=documented(404), tags=["items"])
async def find_items(running: Running, query: Annotated[schemas.SearchQuery, Query()]) -> told.Items:
    """Find items by a part of their id or title."""
    model = running.model(query.model)
    table = await running.search(lambda: model.items.find(query.search, query.limit))
    return told.Items(
        items=[told.Item(item=item, title=named, count=count) for item, named, count in table.iter_rows()]
    )


@api.get("/items/{item:path}/similar", responses=documented(404), tags=["items"])
async def similar_items(
    running: Running, item: Text, query: Annotated[schemas.SimilarQuery, Query()]
) -> told.SimilarItems:
    """Items whose vectors point in the most similar direction."""
    model = running.model(query.model)
    code = running.item(model, item)
    (answer,) = await running.answers.ask([Similar(model, code, query.k)])
    alike = zip(raw_items(model, answer.codes), item_titles(model, answer.codes), answer.scores, strict=True)
    return told.SimilarItems(
        model=model.name,
        item=raw_items(model, [code])[0],
        items=[
            told.SimilarItem(rank=rank, item=raw, title=named, similarity=similarity)
            for rank, (raw, named, similarity) in enumerate(alike, start=1)
        ],
    )


@api.get("/model", responses=documented(404), tags=["model"])
async def get_model(running: Running, query: Annotated[schemas.ModelQuery, Query()]) -> told.ModelAnswer:
    """A model: its recipe, its metrics, its time scales, and the data that it was fitted on."""
    return told.ModelAnswer(
        model=model_info(running.model(query.model)),
        at="end of the log" if running.settings.at is None else "now",
        models=running.models.names,
    )


@api.post("/model/reload", responses=documented(404, 409), tags=["model"])
async def reload(running: Running, query: Annotated[schemas.ModelQuery, Query()]) -> told.Reloaded:
    """Load one model, or all, anew from their folders. If one is refused, all stay as they are."""
    if query.model is not None:
        running.model(query.model)
    return told.Reloaded(reloaded=await run_in_threadpool(running.reload, query.model))


@state.get("/healthz", responses={500: documented()[500]}, tags=["state"])
async def healthz() -> told.State:
    """Whether the process runs."""
    return told.State(status="ok")


@state.get("/readyz", responses=documented(), tags=["state"])
async def readyz(running: Running) -> told.State:
    """Whether the store answers, so that requests can be."""
    await running.check()
    return told.State(status="ok")


@state.get("/metrics", responses=documented() | {200: {"content": {"text/plain": {}}}}, tags=["state"])
async def metrics(running: Running) -> Response:
    """Counts and times for Prometheus."""
    running.measure()
    return Response(generate_latest(running.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
