"""The models that answer: loaded, checked, and swapped while requests go on."""

import gc
import logging
import threading
import time
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
import torch
from torch import Tensor

from marsrec.data.histories import Vocabulary
from marsrec.data.times import TimeUnit
from marsrec.errors import DataError, MarsrecError
from marsrec.recommender import Recommender
from marsrec.recommender.explanation import read
from marsrec.recommender.inference import Inference, Request
from marsrec.serve.fragments import ItemFragments
from marsrec.serve.histories import Sessions
from marsrec.serve.search import Index
from marsrec.serve.settings import ServeSettings
from marsrec.serve.shortlist import Shortlist
from marsrec.serve.store import Store

log = logging.getLogger(__name__)

QUICK_ITEMS = 50_000
"""Items that all are scored in about a millisecond."""
SAMPLED = 256
"""Users that an approximate index is tried on."""


class BusyError(MarsrecError):
    """Models are being loaded already."""


@dataclass(frozen=True)
class Model:
    """A loaded model with the live sessions of its users."""

    name: str
    folder: Path
    recommender: Recommender
    sessions: Sessions
    loaded: float
    """When, in seconds since 1970."""
    fragments: ItemFragments
    """Its items as JSON."""
    shortlist: Shortlist | None = None
    """What names the items that are ranked, where not all are."""

    @property
    def quick(self) -> bool:
        """Whether an answer takes no longer than handing the question to a thread, and the answer back."""
        few = self.shortlist is not None or len(self.recommender.item_ids) <= QUICK_ITEMS
        return few and self.inference.device.type == "cpu"

    @property
    def inference(self) -> Inference:
        """The way from events and a moment to an answer."""
        return self.recommender.inference

    @cached_property
    def items(self) -> Index:
        """Items to search in, the frequent ones first."""
        return Index(self.recommender.item_ids, self.recommender.item_counts[1:])

    @cached_property
    def users(self) -> Index:
        """Users that were saved with the model, to search in."""
        return Index(self.sessions.user_ids)


class Models:
    """Models by name. A request takes one and keeps it to its end, whatever is loaded meanwhile."""

    def __init__(self, settings: ServeSettings) -> None:
        self._settings = settings
        self._loading = threading.Lock()
        self._fresh: dict[str, Model] = {}
        recommenders = {ServeSettings.name_of(folder): _load(folder) for folder in settings.models}
        first, *others = recommenders.values()
        for other in others:
            _same_kinds(first, other)
        self.store = Store(settings.store_url, first.unit, settings.user_events)
        try:
            self._models = {
                name: self._live(name, folder, recommender)
                for (name, recommender), folder in zip(recommenders.items(), settings.models, strict=True)
            }
        except BaseException:
            self.store.close()
            raise

    @property
    def names(self) -> list[str]:
        """Names of the models, the default first."""
        return list(self._models)

    @property
    def unit(self) -> TimeUnit:
        """Unit of all times."""
        return self.get().recommender.unit

    @property
    def user_ids(self) -> Vocabulary:
        """Users of the first model that was saved with histories: all models have ids of that kind."""
        every = list(self._models.values())
        return next((model for model in every if model.recommender.histories is not None), every[0]).sessions.user_ids

    def get(self, name: str | None = None) -> Model:
        """The model of a name, or the default one. Raises KeyError if there is none of that name."""
        models = self._models
        return models[name] if name is not None else next(iter(models.values()))

    def reload(self, name: str | None = None) -> list[Model]:
        """Load one model, or all, anew from their folders. If any is refused, all old ones stay."""
        self.prepare(name)
        return self.exchange()

    def prepare(self, name: str | None = None) -> None:
        """Load one model, or all, anew, to be exchanged or discarded next. Nobody else loads any until then."""
        if not self._loading.acquire(blocking=False):
            raise BusyError("models are being loaded already. Try again when that is done.")
        try:
            chosen = [self.get(name)] if name is not None else list(self._models.values())
            fresh = {}
            for old in chosen:
                recommender = _load(old.folder)
                _same_kinds(old.recommender, recommender)
                _knows_as_much(old, recommender)
                fresh[old.name] = self._live(old.name, old.folder, recommender)
            self._fresh = fresh
        except BaseException:
            self._loading.release()
            raise

    def exchange(self) -> list[Model]:
        """Answer by the models that were prepared."""
        fresh = self._fresh
        self._models = {**self._models, **fresh}  # in one step: a reader has the old ones or the new ones
        self.discard()
        return list(fresh.values())

    def discard(self) -> None:
        """Let go of the models that were prepared, if any were."""
        self._fresh = {}
        if gc.get_freeze_count():
            settle()
        if self._loading.locked():
            self._loading.release()

    def _live(self, name: str, folder: Path, recommender: Recommender) -> Model:
        sessions = Sessions(recommender, self.store, self._settings.cache_mb * 2**20)
        model = Model(name, folder, recommender, sessions, time.time(), ItemFragments(recommender.item_ids))
        _try_out(model)
        if self._settings.ann_from is not None and len(recommender.item_ids) >= self._settings.ann_from:
            model = replace(model, shortlist=_shortlist(model))
            _try_out(model)
        return model


def settle() -> None:
    """Let the collector of garbage pass over all that is here now, and lasts: a look at it takes a tenth of a second.

    What was passed over before, such as models that were let go since, is looked at once more.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _load(folder: Path) -> Recommender:
    """Load a folder, and check what later would fail in the middle of a request."""
    try:
        recommender = Recommender.load(folder)
        if recommender.histories is not None:
            histories = recommender.histories
            # In memory: a file that is cut short while it is mapped would end the process.
            histories = replace(histories, items=np.array(histories.items), times=np.array(histories.times))
            items, offsets = histories.items, histories.offsets
            if (
                items.ndim != 1
                or not np.issubdtype(items.dtype, np.integer)
                or not np.issubdtype(offsets.dtype, np.integer)
                or histories.times.dtype != np.int64
                or histories.unit != recommender.unit
                or not histories.item_ids.ids.equals(recommender.item_ids.ids)
                or offsets[0] != 0
                or (np.diff(offsets) < 0).any()
                or (len(items) and not 1 <= items.min() <= items.max() <= len(histories.item_ids))
                or (len(items) and histories.times.min() < 0)
            ):
                raise DataError(f"{folder}: its histories do not fit its model. Fit and save it again.")
            recommender.histories = histories
            histories.user_ids.encode([""])  # the table of codes is made now and not by the first request
        recommender.item_ids.encode([""])
        return recommender
    except MarsrecError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{folder}: not a readable saved recommender ({reason}). Fit and save it again.") from error


def _same_kinds(old: Recommender, new: Recommender) -> None:
    if old.unit != new.unit:
        raise DataError(f"the unit of its times is {new.unit}, that of the models served is {old.unit}.")
    ids = [(old.item_ids, new.item_ids)]
    if old.histories is not None and new.histories is not None:
        ids.append((old.histories.user_ids, new.histories.user_ids))
    for have, found in ids:
        if have.ids.dtype != found.ids.dtype:
            raise DataError(f"its ids are {found.ids.dtype}, those of the models served are {have.ids.dtype}.")


def _knows_as_much(old: Model, new: Recommender) -> None:
    """Refuse a model that lacks histories or items which the old one had: what users took would be forgotten."""
    if old.recommender.histories is not None and new.histories is None:
        raise DataError(
            f"{old.folder}: was saved without histories, {old.name} has those of its users. "
            "Save it with them, or start another server."
        )
    missing = old.recommender.item_ids.ids.filter(~old.recommender.item_ids.ids.is_in(new.item_ids.ids.implode()))
    if len(missing):
        raise DataError(
            f"{old.folder}: of another vocabulary: it lacks {len(missing):,} items that {old.name} knows, such as "
            f"{missing[0]!r}. Fit it on a log that has them, or start another server."
        )


def _shortlist(model: Model) -> Shortlist:
    made = Shortlist.build(model.inference.network, _sample(model))
    gain = "" if made.searched < made.lists else " Nothing is gained by it: rank exactly."
    log.info(
        f"{model.name}: {len(model.recommender.item_ids):,} items in an index of {made.lists:,} lists, "
        f"{made.searched:,} of them searched; it finds {made.recall:.1%} of the ten best.{gain}"
    )
    return made


def _sample(model: Model) -> Tensor:
    """Vectors of some users (N, d); of histories of one item each if it was saved without its users."""
    recommender, rng = model.recommender, np.random.default_rng(0)
    users = rng.permutation(len(model.sessions.user_ids))[:SAMPLED] + 1
    histories = [model.sessions.saved(int(user)) for user in users]
    histories = [(codes, times) for codes, times in histories if len(codes)]
    if not histories:
        items = rng.permutation(len(recommender.item_ids))[:SAMPLED] + 1
        histories = [(np.array([item]), np.array([recommender.log_end])) for item in items]
    inference = model.inference
    # Of equal rounded times (`ties="recbole"`) the later event counts as simultaneous, as in sessions.
    windows = [inference.window(codes, np.maximum.accumulate(times)) for codes, times in histories]
    return inference.vectors(windows, [inference.moment(None, window.latest) for window in windows])


def _try_out(model: Model) -> None:
    """Answer one request, so that a model of broken numbers is refused, and the first request need not wait."""
    recommender, inference = model.recommender, model.inference
    if not all(bool(torch.isfinite(value).all()) for value in inference.network.state_dict().values()):
        raise DataError(f"{model.folder}: some of its weights are not numbers. Fit and save it again.")
    try:
        window = inference.window(np.array([1, len(recommender.item_ids)]), np.array([recommender.log_end] * 2))
        inference.answer([Request(window, recommender.log_end, k=1)], ranker=model.shortlist)
        read(inference, window, recommender.log_end).split(inference.network, torch.tensor([1]), 1)
        session = recommender.start()
        session.extend(window.codes, window.times)
        session.vector()
    except Exception as error:
        raise DataError(f"{model.folder}: does not answer ({error}). Fit and save it again.") from error
