"""Live sessions give what recomputing gives, whatever came in between."""

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa
from tests.serve.conftest import LOG, START, made, one

from marsrec import Recommender
from marsrec.serve.histories import OVERHEAD, Sessions
from marsrec.serve.store import Event, Removal, Store
from marsrec.serve.worker import RecommendJob, UnknownUserError, work


def naive(recommender: Recommender, user: str, arrived: list[Event]) -> list[tuple[str, int]]:
    """A user's known events by the rules, written out: saved ones, new ones, in order of time."""
    saved = list(LOG.filter(user=user).select("item", "time").iter_rows())
    known = set(recommender.item_ids.ids)
    unique = list(dict.fromkeys((event.item, event.time) for event in arrived))
    events = saved + [event for event in unique if event not in saved and event[0] in known]
    return sorted(events, key=lambda event: event[1])


def test_random_interleavings_equal_a_full_recomputation(recommender: Recommender, store: Store) -> None:
    """In order and late, doubled, of unknown items, also saved ones; requests to two servers, with evictions."""
    rng = np.random.default_rng(0)
    users = ["u1", "u2", "new", "other"]
    servers = [made(recommender, store, sessions=2), made(recommender, store)]
    arrived: dict[str, list[Event]] = {user: [] for user in users}
    clock, requests = START, 0
    for _ in range(160):
        user = users[rng.integers(len(users))]
        clock += int(rng.integers(0, 3)) * int(rng.integers(1, 40_000))
        kind = rng.random()
        if kind < 0.6:
            event = Event(f"i{rng.integers(20)}", clock)
        elif kind < 0.7:
            event = Event(f"i{rng.integers(20)}", clock - int(rng.integers(1, 500_000)))  # late
        elif kind < 0.8:
            event = Event(f"unknown{rng.integers(3)}", clock)
        elif kind < 0.9 and arrived[user]:
            event = arrived[user][rng.integers(len(arrived[user]))]  # sent again
        else:
            item, time = LOG.filter(user="u1").row(int(rng.integers(10)))[1:]
            event = Event(item, time)  # for u1 an event that was saved with the model
        store.write([(user, [event])])
        arrived[user].append(event)
        if rng.random() < 0.6:
            continue
        requests += 1
        user = users[rng.integers(len(users))]
        history = naive(recommender, user, arrived[user])
        if not history:
            continue
        expected = recommender.start(history).recommend(k=20, mask_seen=False)
        found = one(RecommendJob(servers[rng.integers(2)], user=user, k=20, since=recommender.log_end, mask_seen=False))
        assert found.at == max(recommender.log_end, history[-1][1])
        scores = dict(zip(expected["item"], expected["score"], strict=True))
        items = recommender.item_ids.decode(found.answer.codes).to_list()
        np.testing.assert_allclose(found.answer.scores, [scores[item] for item in items], atol=2e-4)
        np.testing.assert_allclose(found.answer.scores, expected["score"], atol=2e-4)
    assert requests > 50
    assert len(servers[0].sessions) == 2
    assert sum(server.sessions.built for server in servers) < requests  # some sessions only caught up


def test_an_event_in_order_is_added_and_one_out_of_order_rebuilds(recommender: Recommender, store: Store) -> None:
    model = made(recommender, store)

    def built_after(*events: Event) -> int:
        store.write([("ann", events)])
        one(RecommendJob(model, user="ann"))
        return model.sessions.built

    assert built_after(Event("i1", START)) == 1
    assert built_after(Event("i2", START), Event("i3", START + 5)) == 1
    assert built_after(Event("i4", START + 9), Event("i5", START + 7)) == 1  # in order of time among themselves
    assert built_after(Event("unknown", START - 9)) == 1
    assert built_after(Event("i6", START + 8)) == 2
    assert built_after() == 2


def test_a_store_that_was_put_back_makes_sessions_anew(recommender: Recommender, store: Store) -> None:
    model = made(recommender, store)
    store.write([("ann", [Event("i1", START), Event("i2", START + 5)]), ("bob", [Event("i1", START)])])
    one(RecommendJob(model, user="ann"))
    with store.engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM marsrec_events WHERE item = 'i2'"))
        connection.execute(sa.text("UPDATE marsrec_users SET events = 1"))
    alike = [one(RecommendJob(model, user=user, mask_seen=False)).answer.scores for user in ("ann", "bob")]
    np.testing.assert_allclose(*alike, atol=1e-5)
    assert model.sessions.built == 3


def test_a_removed_event_makes_sessions_anew(recommender: Recommender, store: Store) -> None:
    servers = made(recommender, store), made(recommender, store)
    tea, milk, later = Event("i1", START), Event("i2", START + 5), Event("i3", START + 9)
    store.write([("ann", [tea, milk]), ("bob", [tea, later])])
    for server in servers:
        one(RecommendJob(server, user="ann"))
    # As many events as before, but others: the number alone would not show it.
    store.write([("ann", Removal(milk)), ("ann", [later])])
    for server in servers:
        alike = [one(RecommendJob(server, user=user, mask_seen=False)) for user in ("ann", "bob")]
        np.testing.assert_array_equal(alike[0].answer.codes, alike[1].answer.codes)
        np.testing.assert_allclose(*(result.answer.scores for result in alike), atol=1e-5)
    store.write([("ann", Removal())])
    (outcome,) = work([RecommendJob(servers[0], user="ann")])
    assert isinstance(outcome, UnknownUserError)
    store.write([("u1", [later])])
    one(RecommendJob(servers[0], user="u1"))
    store.write([("u1", Removal())])
    saved = one(RecommendJob(servers[0], user="u1", since=recommender.log_end, mask_seen=False))
    np.testing.assert_allclose(
        saved.answer.scores, recommender.start("u1").recommend(k=10, mask_seen=False)["score"], atol=2e-4
    )


def test_a_removal_in_the_middle_of_a_request(
    recommender: Recommender, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = made(recommender, store)
    i1, i2, i3, i4 = (Event(f"i{number}", START + number) for number in range(1, 5))
    store.write([("ann", [i1, i2]), ("bob", [i2, i3, i4])])
    one(RecommendJob(model, user="ann"))
    store.write([("ann", [i3, i4])])
    versions = store.versions

    def then_removed(users: list[str]) -> dict[str, tuple[int, int]]:
        found = versions(users)
        store.write([("ann", Removal(i1))])
        return found

    monkeypatch.setattr(store, "versions", then_removed)
    ann = one(RecommendJob(model, user="ann", mask_seen=False))
    monkeypatch.undo()
    bob = one(RecommendJob(model, user="bob", mask_seen=False))
    np.testing.assert_allclose(ann.answer.scores, bob.answer.scores, atol=1e-5)
    history = model.sessions.history

    def forgotten(user: str) -> object:
        store.write([(user, Removal())])
        return history(user)

    monkeypatch.setattr(model.sessions, "history", forgotten)
    (outcome,) = work([RecommendJob(model, user="ann", explain=True)])
    assert isinstance(outcome, UnknownUserError)


def test_a_number_of_events_that_are_not_there_is_no_error(recommender: Recommender, store: Store) -> None:
    model = made(recommender, store)
    store.write([("ann", [Event("i1", START)])])
    before = one(RecommendJob(model, user="ann"))
    with store.engine.begin() as connection:
        connection.execute(sa.text("UPDATE marsrec_users SET events = 2"))
    after = one(RecommendJob(model, user="ann"))
    np.testing.assert_array_equal(after.answer.codes, before.answer.codes)


def test_small_sessions_count_with_their_overhead(recommender: Recommender, store: Store) -> None:
    each = recommender.start().nbytes + OVERHEAD
    assert [Sessions(recommender, store, size).most for size in (1, 3 * each - 1, 3 * each)] == [1, 2, 3]


def test_unknown_items_count_as_soon_as_a_model_knows_them(
    recommender: Recommender, store: Store, tmp_path: Path
) -> None:
    store.write([("ann", [Event("i1", START), Event("i7", START + 1)])])
    older = Recommender.load(_without(recommender, "i7", tmp_path / "older"))
    before = one(RecommendJob(made(older, store), user="ann", k=0, explain=True))
    assert before.history is not None
    assert (before.history.codes > 0).tolist() == [True, False]
    assert before.reading is not None
    assert len(before.reading.codes) == 1
    after = one(RecommendJob(made(recommender, store), user="ann", k=0, explain=True))
    assert after.reading is not None
    assert len(after.reading.codes) == 2


def _without(recommender: Recommender, item: str, folder: Path) -> Path:
    """The same model with an item called otherwise."""
    known = recommender.item_ids
    renamed = type(known)(known.ids.replace(item, "something else"))
    recommender.item_ids = renamed
    try:
        recommender.save(folder, histories=False)
    finally:
        recommender.item_ids = known
    return folder
