"""Items: finding them, and the items like one."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from marsrec.serve.endpoints.dependencies import PathId, Running
from marsrec.serve.refusals import documented
from marsrec.serve.rendering import item_titles, raw_items
from marsrec.serve.schemas import MAX_K, AnswerSchema, ModelQuery, RawId, SearchQuery
from marsrec.serve.worker import SimilarJob

router = APIRouter(prefix="/v1", tags=["items"])


class SimilarQuery(ModelQuery):
    """How many similar items."""

    k: int = Field(10, ge=1, le=MAX_K)
    """How many items."""


class Item(AnswerSchema):
    """An item of the model."""

    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    count: int
    """How often it was trained on."""


class Items(AnswerSchema):
    """What a search found, ids that begin with the text first, then the most frequent."""

    items: list[Item]


class SimilarItem(AnswerSchema):
    """An item that is like another."""

    rank: int
    item: RawId
    title: str | None = None
    """What people call the item; null where the data did not bring a title."""
    similarity: float
    """Cosine of the items' vectors."""


class SimilarItems(AnswerSchema):
    """The most similar items."""

    model: str
    item: RawId
    items: list[SimilarItem]


@router.get("/items", responses=documented(404))
async def find_items(running: Running, query: Annotated[SearchQuery, Query()]) -> Items:
    """Find items by a part of their id or title."""
    model = running.model(query.model)
    table = await running.search(lambda: model.items.find(query.search, query.limit))
    return Items(items=[Item(item=item, title=title, count=count) for item, title, count in table.iter_rows()])


@router.get("/items/{item:path}/similar", responses=documented(404))
async def similar_items(running: Running, item: PathId, query: Annotated[SimilarQuery, Query()]) -> SimilarItems:
    """Items whose vectors point in the most similar direction."""
    model = running.model(query.model)
    code = running.item(model, item)
    (result,) = await running.answers.submit([SimilarJob(model, code, query.k)])
    codes = result.answer.codes.tolist()
    alike = zip(raw_items(model, codes), item_titles(model, codes), result.answer.scores.tolist(), strict=True)
    return SimilarItems(
        model=model.name,
        item=raw_items(model, [code])[0],
        items=[
            SimilarItem(rank=rank, item=raw, title=title, similarity=similarity)
            for rank, (raw, title, similarity) in enumerate(alike, start=1)
        ],
    )
