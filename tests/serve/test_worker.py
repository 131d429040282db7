"""Jobs: together as each alone; explained, the session's scores in parts, one history after the other."""

import weakref
from typing import Any

import numpy as np
import pytest
import torch
from tests.serve.conftest import START, made, one

from marsrec import Recommender
from marsrec.recommender.explanation import Reading, read
from marsrec.serve.store import Event, Store
from marsrec.serve.worker import RecommendJob, Result, work


def test_explained_scores_are_those_of_the_session_and_split_exactly(
    recommender: Recommender, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also for histories that are longer than the model's length, which a recurrent model's session folds."""
    monkeypatch.setattr("marsrec.recommender.explanation.PIECE", 7)
    model = made(recommender, store)
    store.write([("ann", [Event(f"i{number % 20}", START + 5000 * number) for number in range(30)])])
    for at in (None, START + 10**6):
        live = one(RecommendJob(model, user="ann", k=5, at=at, mask_seen=False))
        explained = one(RecommendJob(model, user="ann", k=5, at=at, mask_seen=False, explain=True))
        np.testing.assert_array_equal(explained.answer.codes, live.answer.codes)
        np.testing.assert_allclose(explained.answer.scores, live.answer.scores, atol=2e-4)
        assert explained.reading is not None
        assert len(explained.reading.codes) == (30 if recommender.network.recurrent else 6)
        assert (explained.split is None) == (recommender.settings.readout.name != "mars")
        for shown in (1, 4, 100):
            parts = explained.reading.split(recommender.network, torch.from_numpy(explained.answer.codes), shown)
            if parts is not None:
                assert parts.shares.shape[2] == min(shown, len(explained.reading.codes))
                total = parts.rest + parts.shares.sum((1, 2)) + parts.earlier.sum(1)
                np.testing.assert_allclose(total.numpy(), explained.answer.scores, atol=1e-4)


def test_long_histories_are_explained_one_at_a_time_and_told_in_part(
    recommender: Recommender, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(recommender, store)
    monkeypatch.setattr("marsrec.serve.worker.SHOWN_EVENTS", 4)
    before: list[weakref.ref[Reading]] = []

    def alone(*arguments: Any, **options: Any) -> Reading:
        assert [kept() for kept in before] == [None] * len(before)
        before.append(weakref.ref(found := read(*arguments, **options)))
        return found

    monkeypatch.setattr("marsrec.serve.worker.read", alone)
    store.write([("ann", [Event(f"i{number}", START + 5000 * number) for number in range(20)])])
    for explained in work([RecommendJob(model, user="ann", k=3, mask_seen=False, explain=True)] * 3):
        assert isinstance(explained, Result)
        reading, history, parts = explained.reading, explained.history, explained.split
        assert reading is not None
        assert history is not None
        assert (history.items, history.earlier) == (["i16", "i17", "i18", "i19"], 16)
        assert len(reading.codes) == 4
        assert reading.earlier == (16 if recommender.network.recurrent else 2)
        if reading.parts is not None:
            assert (reading.parts.values.shape[0], reading.parts.weights.shape[1]) == (4, 4)
            for kept in (reading.user, reading.parts.rest, reading.parts.values, reading.parts.weights):
                assert kept.untyped_storage().nbytes() == kept.nbytes  # no view of all of the events
        if parts is not None:
            assert parts.earlier.any()
            total = parts.rest + parts.shares.sum((1, 2)) + parts.earlier.sum(1)
            np.testing.assert_allclose(total.numpy(), explained.answer.scores, atol=1e-4)
    assert len(before) == 3
    assert model.sessions.built == 0  # an explanation needs no session
