"""The class people use: fit, recommend, explain, save, load. Raw ids in, raw ids out."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl

from marsrec.data.filters import FilterSettings
from marsrec.data.histories import Ties
from marsrec.data.log import LogSettings
from marsrec.data.source import open_data
from marsrec.data.splits import SplitSettings
from marsrec.errors import DataError, SettingsError
from marsrec.models import DENSE_FROM, Choice, model_settings, title
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
from marsrec.nn.settings import ModelSettings
from marsrec.paper import paper_options, shipped_options
from marsrec.recommender import hub, persistence
from marsrec.recommender.explanation import Explanation, explain, read
from marsrec.recommender.export import export
from marsrec.recommender.fitting import fit_recommender
from marsrec.recommender.html import of_recommender
from marsrec.recommender.inputs import answered, as_kind, is_one, item_of, kind_of
from marsrec.recommender.session import Session
from marsrec.recommender.trained import Trained
from marsrec.training.settings import TrainingSettings


class Recommender(Trained):
    """Recommends the next item from timestamped histories.

    Parameters
    ----------
    model : str
        A recipe's name (`marsrec models` lists them), or "mars" to let the average length of the training sequences
        choose.
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
        super().__init__()
        self.name, self.published = model, published
        self.encoder, self.readout, self.scorer, self.objective = encoder, readout, scorer, objective
        self.options = dict(options or {})
        persistence.check(self)
        planned = self.settings_without_data()
        self.training = (training or TrainingSettings()).suited_to(planned)

    def __repr__(self) -> str:
        if self._network is None:
            return f"<Recommender: {self.name}, not fitted>"
        users = f", {self.histories.n_users:,} users" if self.histories is not None else ""
        return f"<Recommender: {title(self.settings)}, {len(self.item_ids):,} items{users}>"

    def _repr_html_(self) -> str:
        return of_recommender(self)

    # ------------------------------------------------------------------ fit

    def settings_without_data(self) -> ModelSettings:
        """The model as far as it is known before data are: bad settings fail here."""
        try:
            return self.planned_settings(0.0)
        except SettingsError:
            if self.name != "mars":  # whose two backbones take different settings
                raise
            return self.planned_settings(DENSE_FROM)

    def planned_settings(self, average_length: float, public: str | None = None) -> ModelSettings:
        """The model that would be trained on histories of this average length, or on a public data set."""
        paper = paper_options(public, self.name, self.encoder, self.readout, self.scorer, self.objective)
        return model_settings(
            self.name,
            average_length,
            encoder=self.encoder,
            readout=self.readout,
            scorer=self.scorer,
            objective=self.objective,
            options={**shipped_options(public, self.name), **paper, **self.options},
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
        from marsrec.training.loggers import check_loggers  # Lightning takes seconds, and only training needs it
        from marsrec.training.progress import shown

        check_loggers(self.training.logger)  # before data are read
        with shown(progress):
            source = open_data(data, log_settings=log_settings, filters=filters, ties=ties)
            where = None if folder is None else Path(folder).expanduser()
            fit_recommender(
                self, source, split or SplitSettings(), test=test, folder=where, resume=resume, progress=progress
            )
        self.kind = kind_of(data) or "polars"
        return self

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
        pasts = self._windows(given)
        moments = self.moments(at, [None if past is None else past.latest for past in pasts])
        seen = [given.items[slice(*given.offsets[row : row + 2])] if mask_seen else None for row in range(len(pasts))]
        kind = kind_of(users if users is not None else histories)
        return self.answer(given.user_ids.ids, pasts, moments, seen, k=k, candidates=candidates, kind=kind)

    # ----------------------------------------------------------------- live

    def start(self, history: Any = ()) -> Session:
        """A live session of one user, which takes in events as they happen.

        With a recurrent model (gru4rec, mamba4rec, mars-m, hawkes-m) an event and a request cost the same however long
        the history is, and all of it counts. With others the session keeps the latest `length` events.

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
        if given.n_users != 1 or (window := self._windows(given)[0]) is None:
            raise DataError("explain needs one history with at least one known item.")
        code = item_of(item, self.item_ids)
        (moment,) = self.moments(at, [window.latest])
        reading = read(self.inference, window, moment)
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
            `model.safetensors`, `config.json`, `items.parquet`, `metrics.json` and a model card, `README.md`, go there.
        histories : bool
            Also write the users' histories, so that `recommend(users=...)` works after loading.
        """
        persistence.save(self, Path(folder).expanduser(), histories=histories)

    def export(self, folder: str | Path) -> None:
        """Write a folder by which other software answers, without marsrec and torch.

        Parameters
        ----------
        folder : str or Path
            `model.onnx` makes a user vector of a history, `items.safetensors` holds what it is multiplied with, and
            `model.json` says how, with the ids of the items and an example.
        """
        self._fitted()
        export(self, Path(folder).expanduser())

    @classmethod
    def load(cls, folder: str | Path, device: str = "cpu") -> Self:
        """Read what `save` wrote."""
        return persistence.load(cls, Path(folder).expanduser(), device)

    def push_to_hub(
        self,
        repo_id: str,
        *,
        histories: bool = False,
        private: bool | None = None,
        revision: str | None = None,
        message: str | None = None,
        token: str | None = None,
    ) -> str:
        """Upload it, with its model card, to the Hugging Face hub, in one commit (extra `hub`).

        Parameters
        ----------
        repo_id : str
            Owner and name, such as "anna/shop-mars". It is made if it is not there.
        histories : bool
            Also upload the users' events. Everybody who may read the model can read them then.
        private : bool, optional
            Whether a new one is private; by default what the owner has set.
        revision : str, optional
            A branch, made if it is not there; "main" by default.
        message : str, optional
            Of the commit.
        token : str, optional
            By default that of `hf auth login`, or of `HF_TOKEN`.

        Returns
        -------
        str
            The address of the commit.

        Examples
        --------
        >>> recommender.push_to_hub("anna/shop-mars")  # doctest: +SKIP
        'https://huggingface.co/anna/shop-mars/commit/...'
        """
        self._fitted()
        return hub.push(
            self, repo_id, histories=histories, private=private, revision=revision, message=message, token=token
        )

    @classmethod
    def from_hub(
        cls, repo_id: str, *, revision: str | None = None, token: str | None = None, device: str = "cpu"
    ) -> Self:
        """Load what `push_to_hub` uploaded (extra `hub`). What was downloaded once is kept by the hub's cache.

        Only the files of a saved folder are downloaded, and none of them runs code. Checksums tell a damaged file, not
        who wrote it.

        Parameters
        ----------
        repo_id : str
            Owner and name.
        revision : str, optional
            A branch, tag or commit; the commit of a model never changes.
        token : str, optional
            By default that of `hf auth login`, or of `HF_TOKEN`.
        device : str
            Where the model is put.

        Examples
        --------
        >>> Recommender.from_hub("anna/shop-mars", revision="v1")  # doctest: +SKIP
        <Recommender: mars-t, 12,101 items>
        """
        return hub.pull(cls, repo_id, revision=revision, token=token, device=device)
