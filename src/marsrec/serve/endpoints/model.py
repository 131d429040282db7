"""The models that are served, and loading them anew."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query

from marsrec.data.histories import Vocabulary
from marsrec.models import title
from marsrec.serve.endpoints.dependencies import Running
from marsrec.serve.models import Model
from marsrec.serve.refusals import documented
from marsrec.serve.rendering import clock, heads
from marsrec.serve.schemas import AnswerSchema, Head, ModelQuery

router = APIRouter(prefix="/v1", tags=["model"])

MAX_CATEGORIES = 100
"""Categories that an answer lists."""


class IndexInfo(AnswerSchema):
    """The approximate index of a large catalog."""

    lists: int
    """Lists that the items are in."""
    searched: int
    """Lists that are searched for a user."""
    recall: float
    """Share of the true ten best items that it found for a sample of users when it was made."""


class ModelInfo(AnswerSchema):
    """A model that is served."""

    name: str
    title: str
    """Its recipe."""
    fingerprint: str
    """Identifies the model by what its answers depend on."""
    loaded: float
    """When it was loaded, in seconds since 1970."""
    items: int
    categories: list[str]
    """Categories of items in alphabetical order; of more than 100 those with most items. Empty where there are none."""
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


class ModelAnswer(AnswerSchema):
    """The model of the request, and the names of all."""

    model: ModelInfo
    at: Literal["now", "end of the log"]
    """When requests that name no moment are made, unless the latest event is later."""
    models: list[str]


class Reloaded(AnswerSchema):
    """The models that were loaded anew."""

    reloaded: list[str]


@router.get("/model", responses=documented(404))
async def get_model(running: Running, query: Annotated[ModelQuery, Query()]) -> ModelAnswer:
    """A model: its recipe, its metrics, its time scales, and the data that it was fitted on."""
    return ModelAnswer(
        model=model_info(running.model(query.model)),
        at="end of the log" if running.settings.at is None else "now",
        models=running.models.names,
    )


@router.post("/model/reload", responses=documented(404, 409))
async def reload(running: Running, query: Annotated[ModelQuery, Query()]) -> Reloaded:
    """Load one model, or all, anew from their folders. If one is refused, all stay as they are."""
    if query.model is not None:
        running.model(query.model)
    return Reloaded(reloaded=await running.reload(query.model))


def model_info(model: Model) -> ModelInfo:
    """All about a model."""
    recommender, network = model.recommender, model.inference.network
    histories, metrics, scales = recommender.histories, dict(recommender.metrics), network.readout.time_scales()
    return ModelInfo(
        name=model.name,
        title=title(recommender.settings),
        fingerprint=recommender.fingerprint().hex(),
        loaded=model.loaded,
        items=len(recommender.item_ids),
        categories=_categories(recommender.item_ids),
        users=0 if histories is None else histories.n_users,
        unit=recommender.unit,
        log_end=recommender.log_end,
        length=recommender.settings.length,
        recurrent=network.recurrent,
        clock=clock(model),
        time_scale=None if scales is None else scales.scale,
        heads=heads(scales),
        index=None if (made := model.shortlist) is None else IndexInfo.model_validate(made, from_attributes=True),
        parameters=network.parameter_count(),
        settings=recommender.settings.model_dump(mode="json"),
        data=metrics.pop("data", {}),
        metrics={name: metrics[name] for name in ("valid", "test", "protocol", "best_epoch") if name in metrics},
    )


def _categories(ids: Vocabulary) -> list[str]:
    if ids.categories is None:
        return []
    counts = ids.categories.drop_nulls().value_counts().sort("count", "category", descending=[True, False])
    return sorted(counts["category"].head(MAX_CATEGORIES).to_list())
