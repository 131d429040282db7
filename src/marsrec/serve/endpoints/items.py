"""Items: finding them, and the items like one."""

from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import Field

from marsrec.serve.endpoints.dependencies import PathId, Running
from marsrec.serve.refusals import documented
from marsrec.serve.rendering import named_items, raw_items
from marsrec.serve.schemas import MAX_K, AnswerSchema, ModelQuery, NamedItem, RawId, SearchQuery
from marsrec.serve.worker import SimilarJob

router = APIRouter(prefix="/v1", tags=["items"])


class SimilarQuery(ModelQuery):
    """How many similar items."""

    k: int = Field(10, ge=1, le=MAX_K)
    """How many items."""


class Item(NamedItem):
    """An item of the model."""

    count: int
    """How often it was trained on."""


class Items(AnswerSchema):
    """What a search found, ids that begin with the text first, then the most frequent."""

    items: list[Item]


class SimilarItem(NamedItem):
    """An item that is like another."""

    rank: int
    similarity: float
    """Cosine of the items' vectors."""


class SimilarItems(AnswerSchema):
    """The most similar items."""

    model: str
    item: RawId
    items: list[SimilarItem]


@router.get("/items", responses=documented(404))
async def find_items(running: Running, query: Annotated[SearchQuery, Query()]) -> Items:
    """Find items by a part of their id, title or category."""
    model = running.model(query.model)
    table = await running.search(lambda: model.items.find(query.search, query.limit))
    return Items(items=[Item(**row) for row in table.iter_rows(named=True)])


@router.get("/items/{item:path}/similar", responses=documented(404))
async def similar_items(running: Running, item: PathId, query: Annotated[SimilarQuery, Query()]) -> SimilarItems:
    """Items whose vectors point in the most similar direction."""
    model = running.model(query.model)
    code = running.item(model, item)
    (result,) = await running.answers.submit([SimilarJob(model, code, query.k)])
    codes = result.answer.codes.tolist()
    alike = zip(named_items(model, codes), result.answer.scores.tolist(), strict=True)
    return SimilarItems(
        model=model.name,
        item=raw_items(model, [code])[0],
        items=[
            SimilarItem(**named, rank=rank, similarity=similarity)
            for rank, (named, similarity) in enumerate(alike, start=1)
        ],
    )
