"""Items for histories in a request, and for users."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError, to_json
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from marsrec.serve.batching import SHORT
from marsrec.serve.endpoints.dependencies import PathId, Running, json, written
from marsrec.serve.fragments import ranked
from marsrec.serve.ids import as_raw, as_text
from marsrec.serve.models import Model
from marsrec.serve.refusals import RefusalError, documented
from marsrec.serve.rendering import named_items, read_history
from marsrec.serve.schemas import (
    MAX_CANDIDATES,
    MAX_EVENTS,
    MAX_EXPLAINED,
    MAX_HISTORIES,
    MAX_HISTORY,
    MAX_K,
    AnswerSchema,
    GivenEvent,
    Id,
    ModelQuery,
    Moment,
    NamedItem,
    RawId,
    ReadHistory,
    RequestSchema,
    UserQuery,
)
from marsrec.serve.worker import JobResult, RecommendJob

router = APIRouter(prefix="/v1")

SMALL = 1000
"""Events or items that are read or written at once; more are left to a thread, so that nobody waits for them."""

GivenHistory = Annotated[list[GivenEvent], Field(max_length=MAX_HISTORY, fail_fast=True)]
GivenHistories = Annotated[list[GivenHistory], Field(min_length=1, max_length=MAX_HISTORIES, fail_fast=True)]


class RecommendRequest(RequestSchema):
    """Histories, and what to recommend for them. Exactly one of `history` and `histories` is given."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"history": [{"item": "tea", "time": "2026-01-31T12:00:00Z"}], "k": 3}]}
    )

    history: GivenHistory | None = None
    """The events of one user, in any order."""
    histories: GivenHistories | None = None
    """The events of many users, at most 20,000 in all."""
    k: int = Field(10, ge=1, le=MAX_K, strict=True)
    """How many items each."""
    at: Moment | None = None
    """The moment of the request, as `time`, or "now". By default the end of the log, or now (see `at` of
    `GET /v1/model`), but not before the latest event."""
    mask_seen: bool = Field(True, strict=True)
    """Leave out items of the history."""
    candidates: Annotated[list[Id], Field(min_length=1, max_length=MAX_CANDIDATES, fail_fast=True)] | None = None
    """Recommend only these items."""
    explain: bool = Field(False, strict=True)
    """Say why each item has its score, and split it into past events and time scales; for at most 100 items in all."""

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


class RecommendationsQuery(UserQuery):
    """What to recommend to a user."""

    k: int = Field(10, ge=1, le=MAX_K)
    """How many items."""
    mask_seen: bool = True
    """Leave out items of the history."""
    explain: bool = False
    """Say why each item has its score, and split it into past events and time scales; for k up to 100."""


class Explanation(AnswerSchema):
    """A score, split: last_state + the sum of shares + the sum of earlier = score."""

    sentence: str
    """Why the item has its score, in words."""
    last_state: float
    shares: list[list[float]]
    """A row per event of `reading.events`, a column per head."""
    earlier: list[float]
    """Per head, the share of all events before those."""


class Recommended(NamedItem):
    """A recommended item."""

    rank: int
    score: float
    explanation: Explanation | None = None
    """Only with `explain`; null where the model's scores do not split."""


class Recommendations(AnswerSchema):
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


class RecommendAnswer(AnswerSchema):
    """An answer per history, in the order of the request."""

    results: list[HistoryRecommendations]
    unknown_candidates: int
    """Candidates that the model does not know."""


class UserRecommendations(Recommendations):
    """The best items for a user."""

    user: RawId


@router.post("/recommend", response_model=RecommendAnswer, responses=documented(404), tags=["recommend"])
async def recommend(running: Running, body: RecommendRequest, query: Annotated[ModelQuery, Query()]) -> Response:
    """Recommend items for histories in the request: the model looks at the latest events of each, `length` of them."""
    if (body.history is None) == (body.histories is None):
        raise RefusalError(422, "invalid", "Give either history or histories.", "Leave one of them out.")
    histories = [body.history] if body.history is not None else body.histories or []
    _check_explained(body.explain, body.k * len(histories))
    model = running.model(query.model)

    def prepare() -> tuple[list[RecommendJob], list[int], int]:
        candidates, unknown_candidates = running.candidates(model, body.candidates)
        at, since = running.when(model, body.at)
        jobs, unknown_items = [], []
        for history in histories:
            codes, times, unknown = running.history(model, history)
            jobs.append(
                RecommendJob(
                    model,
                    codes=codes,
                    times=times,
                    k=body.k,
                    at=at,
                    since=since,
                    mask_seen=body.mask_seen,
                    candidates=candidates,
                    explain=body.explain,
                )
            )
            unknown_items.append(unknown)
        return jobs, unknown_items, unknown_candidates

    size = sum(map(len, histories)) + len(body.candidates or ())
    jobs, unknown_items, unknown_candidates = prepare() if size <= SMALL else await run_in_threadpool(prepare)
    short = model.quick and len(jobs) <= SHORT
    results = await (running.explained.submit(jobs) if body.explain else running.answers.submit(jobs, short=short))
    if not body.explain and body.k * len(histories) <= SMALL:
        rows = (
            b'{%b,"unknown_items":%d}' % (_spelled(model, result), unknown)
            for result, unknown in zip(results, unknown_items, strict=True)
        )
        return json(b'{"results":[%b],"unknown_candidates":%d}' % (b",".join(rows), unknown_candidates))
    return await written(
        lambda: RecommendAnswer(
            results=[
                HistoryRecommendations(**_recommendations(model, result), unknown_items=unknown)
                for result, unknown in zip(results, unknown_items, strict=True)
            ],
            unknown_candidates=unknown_candidates,
        )
    )


@router.get(
    "/users/{user:path}/recommendations",
    response_model=UserRecommendations,
    responses=documented(404),
    tags=["users"],
)
async def recommend_to_user(
    running: Running, user: PathId, query: Annotated[RecommendationsQuery, Query()]
) -> Response:
    """Recommend items to a user, from what was saved with the model and what the store has."""
    _check_explained(query.explain, query.k)
    model = running.model(query.model)
    text = as_text(user, running.user_ids)
    at, since = running.when(model, query.at)
    job = RecommendJob(
        model, user=text, k=query.k, at=at, since=since, mask_seen=query.mask_seen, explain=query.explain
    )
    result = await running.recommended(job)
    if not query.explain:
        raw = as_raw(text, running.user_ids)
        return json(b'{%b,"user":%b}' % (_spelled(model, result), to_json(raw)))
    return await written(
        lambda: UserRecommendations(**_recommendations(model, result), user=as_raw(text, running.user_ids))
    )


def _check_explained(explain: bool, items: int) -> None:
    if explain and items > MAX_EXPLAINED:
        message = f"{items:,} items are more than the {MAX_EXPLAINED} that one request explains."
        raise RefusalError(422, "too_much", message, "Request fewer items, or leave explain out.")


def _spelled(model: Model, result: JobResult) -> bytes:
    """The fields of `Recommendations` without explanation, as JSON: what `_recommendations` says, but at once."""
    answer = result.answer
    items = ranked(model.fragments, answer.codes.tolist(), answer.scores.tolist())
    facts = to_json(model.name), result.at, to_json(answer.source), items
    return b'"model":%b,"at":%d,"source":%b,"items":%b,"reading":null' % facts


def _recommendations(model: Model, result: JobResult) -> dict[str, Any]:
    """The fields of `Recommendations`."""
    codes = result.answer.codes.tolist()
    columns = named_items(model, codes), result.answer.scores.tolist(), _explanations(result)
    return {
        "model": model.name,
        "at": result.at,
        "source": result.answer.source,
        "items": [
            Recommended(**named, rank=rank, score=score, explanation=explanation)
            for rank, (named, score, explanation) in enumerate(zip(*columns, strict=True), start=1)
        ],
        "reading": read_history(model, result.reading),
    }


def _explanations(result: JobResult) -> list[Explanation] | list[None]:
    split, said = result.split, result.sentences
    if split is None or said is None:
        return [None] * len(result.answer.codes)
    parts = zip(said, split.rest.tolist(), split.shares.mT.tolist(), split.earlier.tolist(), strict=True)
    return [
        Explanation(sentence=sentence, last_state=rest, shares=shares, earlier=earlier)
        for sentence, rest, shares, earlier in parts
    ]
