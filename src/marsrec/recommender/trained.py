"""What a recommender is once it is trained: a network, its items and users, its unit of time, and what was measured."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.histories import Histories, Vocabulary
from marsrec.data.log import LogSettings
from marsrec.data.moments import instant
from marsrec.data.splits import Part, Split, SplitSettings
from marsrec.data.times import TimeUnit
from marsrec.errors import DataError, MarsrecError, SettingsError, warn
from marsrec.evaluation.by_name import Function
from marsrec.evaluation.evaluate import Evaluation, evaluate
from marsrec.evaluation.measures import KS
from marsrec.evaluation.metrics import ACCURACY
from marsrec.nn.model import SequenceModel
from marsrec.nn.settings import ModelSettings
from marsrec.recommender import persistence
from marsrec.recommender.inference import Inference, Past, Request, Window
from marsrec.recommender.inputs import Kind, answered, as_kind, given_histories, items_of, known_histories


class Trained:
    """A trained network and the log that it was trained on; nothing of either before `fit` or `load`."""

    settings: ModelSettings
    """The model."""
    item_ids: Vocabulary
    """Raw ids of the items."""
    item_counts: NDArray[np.int64]
    """(V + 1,) how often each item was trained on."""
    unit: TimeUnit
    """Of all times."""
    log_end: int
    """Time of the latest event of the log."""

    def __init__(self) -> None:
        self._network: SequenceModel | None = None
        self._fingerprint: bytes | None = None
        self._inference: Inference | None = None
        self.histories: Histories | None = None
        self.split_settings = SplitSettings()
        self.columns = LogSettings()
        self.notes: tuple[str, ...] = ()
        self.metrics: dict[str, Any] = {}
        self.kind: Kind = "polars"

    # ---------------------------------------------------------- the network

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

    def fingerprint(self) -> bytes:
        """Eight bytes that tell this model by what its answers depend on."""
        if self._fingerprint is None:
            self._fingerprint = persistence.fingerprint(self)
        return self._fingerprint

    # -------------------------------------------------------------- its log

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
            raise DataError("this recommender was saved without its users' histories, so it cannot be evaluated.")
        return self.split_settings.apply(self.histories)

    def user_ids(self) -> pl.Series:
        """Raw ids of the users of its log."""
        if self.histories is None:
            raise DataError("this recommender was saved without its users' histories, so it knows no users.")
        return self.histories.user_ids.ids

    # -------------------------------------------------------------- answers

    @property
    def inference(self) -> Inference:
        """The way from events and a moment to an answer."""
        if self._inference is None:
            network, length = self._fitted(), self.settings.length
            self._inference = Inference(network, length, self.item_counts, self.unit, self.log_end)
        return self._inference

    def moments(self, at: Any, latest: Sequence[int | None]) -> list[int]:
        """When requests are made at `at` whose latest events were at these times: see `Inference.moment`.

        All are made at one moment, "now" too. Without events (None) it does not matter, and is the end of the log.
        """
        named = None if at is None else self.instant(at)
        moments = [self.log_end if time is None else self.inference.moment(named, time, spelled=at) for time in latest]
        if named is not None and not self.network.sees_request_time:
            warn("this model is not on the request clock: the moment of the request changes nothing.")
        return moments

    def instant(self, moment: Any) -> int:
        """A moment (a number since 1970, ISO text, date, datetime or "now") as a time in the unit of the log."""
        return instant(moment, self.unit, self.log_end)

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

    def _windows(self, given: Histories) -> list[Window | None]:
        """The latest events of each history; None if it has none."""
        codes, times = given.items.astype(np.int64), np.asarray(given.times)
        window = self.inference.window
        pieces = (slice(*bounds) for bounds in pairwise(given.offsets.tolist()))
        return [window(codes[own], times[own]) if own.stop > own.start else None for own in pieces]

    def _at_most(self, k: int) -> int:
        """How many items can be meant by k."""
        if not isinstance(k, int | np.integer) or k < 1:
            raise SettingsError(f"k must be a whole number of at least 1; found {k}.")
        return min(int(k), len(self.item_ids))
