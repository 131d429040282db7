"""The class people use: fit, recommend, explain, save, load. Raw ids in, raw ids out."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.filters import FilterSettings
from marsrec.data.histories import Histories, Ties, Vocabulary
from marsrec.data.log import LogSettings
from marsrec.data.moments import instant
from marsrec.data.source import Source, open_data
from marsrec.data.splits import Part, Split, SplitSettings
from marsrec.data.times import TimeUnit
from marsrec.errors import DataError, MarsrecError, SettingsError, warn
from marsrec.evaluation.by_name import Function
from marsrec.evaluation.evaluate import Evaluation, evaluate
from marsrec.evaluation.measures import KS
from marsrec.evaluation.metrics import ACCURACY
from marsrec.models import DENSE_FROM, Choice, model_settings, rule, title
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.model import SequenceModel
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
from marsrec.nn.settings import ModelSettings
from marsrec.paper import paper_options
from marsrec.provenance import machine, versions
from marsrec.recommender import persistence
from marsrec.recommender.explanation import Explanation, explain, read
from marsrec.recommender.inference import Inference, Past, Request, Window
from marsrec.recommender.inputs import (
    Kind,
    answered,
    as_kind,
    given_histories,
    is_one,
    item_of,
    items_of,
    kind_of,
    known_histories,
)
from marsrec.recommender.session import Session
from marsrec.training.settings import TrainingSettings

if TYPE_CHECKING:
    from marsrec.training.fit import Fitted

logger = logging.getLogger(__name__)


class Recommender:
    """Recommends the next item from timestamped histories.

    Parameters
    ----------
    model : str
        A recipe's name (`marsrec models` lists them), or "mars" to let the average history length choose.
    encoder, readout, scorer, objective : str, mapping or settings, optional
        Replace one part of the recipe by another: its name, or its settings, such as `GruSettings(hidden=64)` or those
        of a part of your own.
    options : mapping, optional
        Model settings by dotted name, such as {"readout.heads": 8, "length": 100}.
    published : bool
        Do what the published code of a baseline does where ours follows its paper instead.
    training : TrainingSettings, optional
        How to train; the defaults are the paper's, but for the size of fearec's batches, which is its authors'.

    Examples
    --------
    >>> from marsrec import Recommender, TrainingSettings
    >>> log = pl.DataFrame({  # everybody takes a, b, c, d in turn
    ...     "user": [u for u in range(30) for _ in range(8)],
    ...     "item": [("a", "b", "c", "d")[(u + i) % 4] for u in range(30) for i in range(8)],
    ...     "time": [1_600_000_000 + 3600 * i for _ in range(30) for i in range(8)],
    ... })
    >>> training = TrainingSettings(epochs=40, targets_per_batch=64, learning_rate=0.01)
    >>> recommender = Recommender("mars-t", options={"encoder.dropout": 0.1}, training=training)
    >>> recommender = recommender.fit(log, progress=False)
    >>> top = recommender.recommend(histories=[("a", 0), ("b", 3600)], k=1, mask_seen=False)
    >>> top["item"].to_list()
    ['c']
    """

    def __init__(
        self,
        model: str = "mars",
        *,
        encoder: Choice[EncoderSettings] = None,
        readout: Choice[ReadoutSettings] = None,
        scorer: Choice[ScorerSettings] = None,
        objective: Choice[ObjectiveSettings] = None,
        options: Mapping[str, Any] | None = None,
        published: bool = False,
        training: TrainingSettings | None = None,
    ) -> None:
        self.name, self.published = model, published
        self.encoder, self.readout, self.scorer, self.objective = encoder, readout, scorer, objective
        self.options = dict(options or {})
        planned = self._check_settings()
        self.training = (training or TrainingSettings()).suited_to(planned)
        self.settings: ModelSettings
        self.split_settings = SplitSettings()
        self._network: SequenceModel | None = None
        self.histories: Histories | None = None
        self.item_ids: Vocabulary
        self.item_counts: NDArray[np.int64]
        self.unit: TimeUnit
        self.log_end: int
        self.columns = LogSettings()
        self.notes: tuple[str, ...] = ()
        self.metrics: dict[str, Any] = {}
        self.kind: Kind = "polars"
        self._fingerprint: bytes | None = None
        self._inference: Inference | None = None

    def __repr__(self) -> str:
        if self._network is None:
            return f"<Recommender: {self.name}, not fitted>"
        users = f", {self.histories.n_users:,} users" if self.histories is not None else ""
        return f"<Recommender: {title(self.settings)}, {len(self.item_ids):,} items{users}>"

    # ------------------------------------------------------------------ fit

    def _check_settings(self) -> ModelSettings:
        """Bad settings fail here and not when data are there; the rule's two backbones take different ones."""
        try:
            return self.planned_settings(0.0)
        except SettingsError:
            if self.name != "mars":
                raise
            return self.planned_settings(DENSE_FROM)

    def planned_settings(self, average_length: float, public: str | None = None) -> ModelSettings:
        """The model that would be trained on histories of this average length, or on a public data set."""
        return model_settings(
            self.name,
            average_length,
            encoder=self.encoder,
            readout=self.readout,
            scorer=self.scorer,
            objective=self.objective,
            options={**paper_options(public, self.name, self.encoder, self.readout), **self.options},
            published=self.published,
        )

    def fit(
        self,
        data: Any,
        *,
        log_settings: LogSettings | None = None,
        filters: FilterSettings | None = None,
        ties: Ties = "file",
        split: SplitSettings | None = None,
        test: bool = True,
        folder: str | Path | None = None,
        resume: bool = False,
        progress: bool = True,
    ) -> Self:
        """Train on a log; by default validate on each user's second last event and test on the last.

        Parameters
        ----------
        data : str, Path, dataframe, Log, Histories or Source
            Who took which item when: a log file, a folder that `marsrec prepare` wrote, the name of a public data set,
            which is trained on with the paper's settings, or the data themselves; see `open_data`.
        log_settings : LogSettings, optional
            How to read a file or dataframe.
        filters : FilterSettings, optional
            Which users and items of a log stay.
        ties : {"file", "recbole"}
            Order of events of equal time.
        split : SplitSettings, optional
            Which events are trained on and which are validation and test targets; leave-one-out if not given.
        test : bool
            Also measure the test targets. False for trainings by which settings are chosen.
        folder : str or Path, optional
            Where training keeps its state, so that it can be resumed.
        resume : bool
            Go on from that state.
        progress : bool
            Show progress and what is noticed: through logging where it is set up to show it (logger "marsrec", level
            INFO), else on stderr. Without it fit is silent.
        """
        from marsrec.training.progress import shown  # Lightning takes seconds, and only training needs it

        with shown(progress):
            source = open_data(data, log_settings=log_settings, filters=filters, ties=ties)
            where = None if folder is None else Path(folder).expanduser()
            self._train(source, split or SplitSettings(), test, where, resume, progress)
        self.kind = kind_of(data) or "polars"
        return self

    def _train(
        self, source: Source, split: SplitSettings, test: bool, folder: Path | None, resume: bool, progress: bool
    ) -> None:
        """Train on opened data."""
        from marsrec.training.fit import fit

        histories, parts = source.histories, split.apply(source.histories)
        settings = self.planned_settings(parts.average_length, source.public)
        for note in source.notes:
            logger.info(f"· {note}")
        logger.info(
            f"{title(settings)}{f' on {source.name}' if source.name else ''}: {histories.n_users:,} users, "
            f"{histories.n_items:,} items, {len(histories):,} events."
        )
        if self.name == "mars" and self.encoder is None:
            logger.info(rule(len(histories) / histories.n_users, parts.average_length, settings))
        software = versions()  # before training: a checkout may have moved on when it ends
        fitted = fit(parts, settings, self.training, folder=folder, resume=resume, progress=progress)
        metrics = {**_measure(fitted, parts, settings, split, test), "versions": software, "machine": machine()}
        metrics["data"] |= {"name": source.name or None, "synthetic": source.synthetic}
        # All at once: a fit that fails or is interrupted leaves what was fitted before.
        self.network, self.histories = fitted.model, histories
        self.settings, self.split_settings, self.metrics = settings, split, metrics
        self.item_ids, self.item_counts = histories.item_ids, parts.item_counts
        self.unit, self.log_end = histories.unit, int(histories.times.max())
        self.notes, self.columns = source.notes, source.columns

    def evaluate(
        self,
        part: Part = "test",
        *,
        metrics: Sequence[str | Function] = ACCURACY,
        mask_seen: bool = False,
        ks: Sequence[int] = KS,
    ) -> Evaluation:
        """Measure the model on the validation or test targets of the log that it was fitted on.

        Parameters
        ----------
        part : {"valid", "test"}
            Which targets.
        metrics : sequence of str or function
            Names such as "NDCG" or "coverage@10", or functions of one's own; see `marsrec.evaluation.metrics`.
        mask_seen : bool
            Leave items of the user's past out of the ranking.
        ks : sequence of int
            Cut-offs of metrics that name none.
        """
        network, length = self.network, self.settings.length
        return evaluate(network, self.split(), length, part, metrics=metrics, mask_seen=mask_seen, ks=ks)

    def split(self) -> Split:
        """The division of its log into training events, validation and test targets."""
        if self.histories is None:
            raise DataError("this recommender was saved without its users' histories, so there is nothing to evaluate.")
        return self.split_settings.apply(self.histories)

    def user_ids(self) -> pl.Series:
        """Raw ids of the users of its log."""
        if self.histories is None:
            raise DataError("this recommender was saved without its users' histories, so it knows no users.")
        return self.histories.user_ids.ids

    # ------------------------------------------------------------ recommend

    def recommend(
        self,
        users: Any = None,
        *,
        histories: Any = None,
        k: int = 10,
        at: Any = None,
        mask_seen: bool = True,
        candidates: Sequence[Any] | None = None,
    ) -> Any:
        """The best items for known users, or for histories given here.

        Parameters
        ----------
        users : raw id, list or column of raw ids
            Users of the log that the recommender was fitted on.
        histories : dataframe, or list of (item, time)
            Events of one user as pairs, or of many as a dataframe with users, items and times.
        k : int
            How many items each; fewer where there are not as many.
        at : number, str or datetime, optional
            The moment of the request (see `instant`), for models on the request clock. By default the end of the log
            or of the history, whichever is later.
        mask_seen : bool
            Leave out items of the user's past.
        candidates : sequence of raw ids, optional
            Recommend only these.

        Returns
        -------
        dataframe
            Columns user, rank, item, score and source, which is "model", or "popularity" for a history without any
            known item. Of the kind that was given: pandas, pyarrow or polars.
        """
        self._fitted()
        if (users is None) == (histories is None):
            raise SettingsError("recommend takes either users=... or histories=...: give one of them.")
        given = self._known(users) if users is not None else self._given(histories)
        pasts = [self._window(given, row) for row in range(given.n_users)]
        moments = [self.log_end if past is None else self.moment(at, past.latest) for past in pasts]
        seen = [given.items[slice(*given.offsets[row : row + 2])] if mask_seen else None for row in range(len(pasts))]
        asked = users if users is not None else histories
        return self.answer(given.user_ids.ids, pasts, moments, seen, k=k, candidates=candidates, kind=kind_of(asked))

    def answer(
        self,
        users: pl.Series,
        pasts: Sequence[Past | None],
        moments: Sequence[int],
        seen: Sequence[NDArray[np.integer[Any]] | None],
        *,
        k: int,
        candidates: Sequence[Any] | None = None,
        kind: Kind | None = None,
    ) -> Any:
        """What `recommend` and `Session.recommend` return: the answers of `Inference`, with raw ids."""
        k = self._at_most(k)
        allowed = None if candidates is None else items_of(candidates, self.item_ids, "candidates")
        requests = [
            Request(past, at, k, hidden, allowed) for past, at, hidden in zip(pasts, moments, seen, strict=True)
        ]
        return as_kind(answered(users, self.inference.answer(requests), self.item_ids), kind or self.kind)

    def _window(self, given: Histories, row: int) -> Window | None:
        """The latest events of a history; None if it has none."""
        own = slice(*given.offsets[row : row + 2])
        return self.inference.window(given.items[own], given.times[own]) if given.lengths[row] else None

    def moment(self, at: Any, latest: int) -> int:
        """When somebody makes a request whose latest event was at `latest`: see `Inference.moment`."""
        if at is None:
            return self.inference.moment(None, latest)
        moment = self.inference.moment(self.instant(at), latest)
        if not self.network.sees_request_time:
            warn("this model is not on the request clock: the moment of the request changes nothing.")
        return moment

    @property
    def inference(self) -> Inference:
        """The way from events and a moment to an answer."""
        if self._inference is None:
            network, length = self._fitted(), self.settings.length
            self._inference = Inference(network, length, self.item_counts, self.unit, self.log_end)
        return self._inference

    def instant(self, moment: Any) -> int:
        """A moment (a number since 1970, ISO text, date, datetime or "now") as a time in the unit of the log."""
        return instant(moment, self.unit, self.log_end)

    def _known(self, users: Any) -> Histories:
        """Histories of users of the log."""
        if self.histories is None:
            raise DataError(
                "this recommender was saved without its users' histories. "
                "Pass histories=... with the events of each user instead."
            )
        return known_histories(users, self.histories)

    def _given(self, histories: Any) -> Histories:
        """Histories from outside."""
        return given_histories(histories, self.item_ids, self.unit, self.columns, self.instant)

    # ----------------------------------------------------------------- live

    def start(self, history: Any = ()) -> Session:
        """A live session of one user, which takes in events as they happen.

        With a recurrent model (gru4rec, mamba4rec, mars-m) an event and a request cost the same however long the
        history is, and all of it counts. With others the session keeps the latest `length` events.

        Parameters
        ----------
        history : raw user id, or what `recommend` takes as `histories`
            A user of the log, or the events of one user so far; nothing for a new one.

        Examples
        --------
        >>> session = recommender.start("u1")  # doctest: +SKIP
        >>> session.add("tea", "2026-01-05 10:00")  # doctest: +SKIP
        >>> session.recommend(k=5)  # doctest: +SKIP
        """
        self._fitted()
        given = self._known(history) if is_one(history) else self._given(history)
        if given.n_users != 1:
            raise DataError(f"a session is of one user; this history has {given.n_users}.")
        session = Session(self)
        session.extend(given.items, np.maximum.accumulate(given.times))  # ties="recbole" orders by rounded times
        return session

    def restore(self, data: bytes | bytearray | memoryview) -> Session:
        """Go on with a session from its `to_bytes`."""
        if not isinstance(data, bytes | bytearray | memoryview):
            raise DataError(f"a session is restored from the bytes of its to_bytes(); found {type(data).__name__}.")
        return Session.from_bytes(self, bytes(data))

    def fingerprint(self) -> bytes:
        """Eight bytes that tell this model by what its answers depend on."""
        if self._fingerprint is None:
            self._fingerprint = persistence.fingerprint(self)
        return self._fingerprint

    # ------------------------------------------------------ explain, similar

    def explain(self, history: Any, item: Any, *, at: Any = None) -> Explanation:
        """Split the score of an item exactly into the last state and one term per past event and head.

        Parameters
        ----------
        history : raw user id, or what `recommend` takes as `histories`
            A user of the log, or the events of one user.
        item : raw id
            The item whose score is explained.
        at : int, str or datetime, optional
            The moment of the request; see `recommend`.
        """
        network = self.network
        given = self._known(history) if is_one(history) else self._given(history)
        if given.n_users != 1 or (window := self._window(given, 0)) is None:
            raise DataError("explain needs one history with at least one known item.")
        code = item_of(item, self.item_ids)
        reading = read(self.inference, window, self.moment(at, window.latest))
        return explain(reading, network, code, self.item_ids, self.unit)

    def similar_items(self, item: Any, k: int = 10) -> Any:
        """Items whose embeddings point in the most similar direction, by cosine."""
        self._fitted()
        found = answered(
            pl.Series([item], strict=False),
            [self.inference.similar(item_of(item, self.item_ids), self._at_most(k))],
            self.item_ids,
        )
        return as_kind(found.select("rank", "item", similarity="score"), self.kind)

    # ------------------------------------------------------------ save, load

    def save(self, folder: str | Path, *, histories: bool = True) -> None:
        """Write a folder that `load` reads; nothing in it is pickled.

        Parameters
        ----------
        folder : str or Path
            `model.safetensors`, `config.json`, `items.parquet` and `metrics.json` go there.
        histories : bool
            Also write the users' histories, so that `recommend(users=...)` works after loading.
        """
        persistence.save(self, Path(folder).expanduser(), histories=histories)

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        """Read what `save` wrote."""
        return persistence.load(cls, Path(folder).expanduser(), device)

    def _at_most(self, k: int) -> int:
        """How many items can be meant by k."""
        if not isinstance(k, int | np.integer) or k < 1:
            raise SettingsError(f"k must be a whole number of at least 1; found {k}.")
        return min(int(k), len(self.item_ids))

    @property
    def network(self) -> SequenceModel:
        """The trained model."""
        return self._fitted()

    @network.setter
    def network(self, trained: SequenceModel) -> None:
        self._network, self._fingerprint, self._inference = trained, None, None

    def _fitted(self) -> SequenceModel:
        if self._network is None:
            raise MarsrecError("this recommender is not fitted yet. Call fit(log) or Recommender.load(folder) first.")
        return self._network


def _measure(
    fitted: "Fitted", parts: Split, settings: ModelSettings, split: SplitSettings, test: bool
) -> dict[str, Any]:
    measured: tuple[Part, ...] = ("valid", "test") if test else ("valid",)
    return {
        **{part: evaluate(fitted.model, parts, settings.length, part).metrics for part in measured},
        "model": title(settings),
        "protocol": {
            "split": split.model_dump(mode="json"),
            "ties": parts.histories.ties,
            "mask_seen": False,
            "ranked": "all items",
        },
        "best_epoch": fitted.best_epoch,
        "epochs": len(fitted.curve),
        "minutes": round(fitted.minutes, 3),
        "complete": fitted.complete,
        "parameters": fitted.model.parameter_count(),
        "data": parts.histories.statistics(),
        "curve": fitted.curve,
    }
