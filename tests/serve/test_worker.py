"""Jobs: together as each alone; explained, the session's scores in parts, one history after the other."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import torch
from tests.serve.conftest import RECIPES, START, made, one

from marsrec import Recommender
from marsrec.recommender.explanation import Reading, read
from marsrec.serve.store import Event, Store
from marsrec.serve.worker import JobResult, RecommendJob, work


@pytest.fixture(params=list(RECIPES))
def recommender(request: pytest.FixtureRequest, folders: dict[str, Path]) -> Recommender:
    """Of every recipe: what is read differs by readout, and not only by kind of session."""
    return Recommender.load(folders[request.param])


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


def test_long_histories_are_explained_one_at_a_time_and_listed_in_part(
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
        assert isinstance(explained, JobResult)
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


def test_what_fails_for_a_user_fails_for_nobody_else(
    recommender: Recommender, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(recommender, store)
    real, read_users = store.events, []

    def events(user: str, after: int = 0) -> list[Event]:
        read_users.append(user)
        if user in failures:
            raise failures[user]
        return real(user, after)

    monkeypatch.setattr(store, "events", events)
    failures: dict[str, Exception] = {"u2": ValueError("a broken row")}
    first, second, third = work([RecommendJob(model, user=user) for user in ("u1", "u2", "u3")])
    assert isinstance(first, JobResult)
    assert isinstance(third, JobResult)
    assert str(second) == "a broken row"
    failures["u5"] = sa.exc.OperationalError("SELECT", {}, Exception("away"))
    history = RecommendJob(model, codes=np.array([1]), times=np.array([START]))
    for explain in (False, True):
        read_users.clear()
        jobs = [RecommendJob(model, user=user, explain=explain) for user in ("u5", "u6", "u7")]
        *outcomes, answered = work([*jobs, history])
        assert outcomes == [failures["u5"]] * 3
        assert read_users == ["u5"]  # a store that is away is waited for once
        assert isinstance(answered, JobResult)


def test_requests_together_get_what_each_gets_alone(recommender: Recommender, store: Store) -> None:
    model = made(recommender, store)
    rng = np.random.default_rng(1)
    store.write([("ann", [Event("i3", START)])])
    jobs = [RecommendJob(model, user=user, k=3, mask_seen=False) for user in ("u1", "nobody", "ann", "u2", "u1")]
    for length in (1, 0, 9, 3):
        codes, times = rng.integers(1, 21, length), START + np.arange(length) * 1000
        jobs.append(RecommendJob(model, codes=codes, times=times, k=int(length) + 2))
    jobs.append(RecommendJob(model, user="u1", k=2, candidates=torch.tensor([3, 4, 9]), mask_seen=False))
    together = work(jobs)
    for job, found in zip(jobs, together, strict=True):
        (alone,) = work([job])
        if job.user == "nobody":
            assert "'nobody' has no events" in str(alone) == str(found)
            continue
        assert isinstance(alone, JobResult)
        assert isinstance(found, JobResult)
        np.testing.assert_array_equal(found.answer.codes, alone.answer.codes)
        assert found.answer.source == alone.answer.source
        np.testing.assert_allclose(found.answer.scores, alone.answer.scores, atol=1e-5)
