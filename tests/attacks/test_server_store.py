"""A store that is deleted, full, damaged or locked, and users with long histories: told, and nobody else waits."""

# ruff: noqa: F811 - the fixtures of serving
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.serve.conftest import START, Start, folders, start  # noqa: F401
from tests.serve.test_store import Open, opened  # noqa: F401

from marsrec.serve import histories
from marsrec.serve.histories import Sessions
from marsrec.serve.store import Event, LockedError, LostError, Removal, Store

EVENT = {"events": [{"item": "i1", "time": START}]}


def ready(client: object) -> int:
    status: int = client.get("/readyz").status_code  # type: ignore[attr-defined]
    return status


@pytest.mark.parametrize("name", ["events.db", "events.db-wal"])
@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(
    folders: dict[str, Path], start: Start, tmp_path: Path, name: str, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marsrec.serve.service.CHECK_SECONDS", 0.0)
    client = start(folders["mars-t"])
    assert client.post("/v1/users/ann/events", json=EVENT).status_code == ready(client) == 200
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).rename(tmp_path / "aside")
    if replaced:
        (tmp_path / name).write_bytes(content)
    answer = client.post("/v1/users/bob/events", json=EVENT)
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_away")
    assert "put the file back" in answer.json()["error"]["remedy"]
    assert ready(client) == 503
    assert client.get("/healthz").status_code == 200
    (tmp_path / "aside").rename(tmp_path / name)
    assert client.post("/v1/users/bob/events", json=EVENT).status_code == ready(client) == 200


@pytest.mark.parametrize("table", ["marsrec_store", "marsrec_users", "marsrec_events"])
def test_a_store_without_a_table_is_not_ready(opened: Open, table: str) -> None:
    store = opened()
    store.check()
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE {table} RENAME TO aside"))
    with pytest.raises(sa.exc.SQLAlchemyError, match=r"no such table|does not exist"):
        store.check()
    with store.engine.begin() as connection:
        connection.execute(sa.text(f"ALTER TABLE aside RENAME TO {table}"))
    store.check()


def test_a_store_on_a_full_disk_is_not_ready(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    store = Store(f"sqlite:///{tmp_path / 'events.db'}", "s")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with store.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    resource.setrlimit(resource.RLIMIT_FSIZE, (1024, limits[1]))  # of the log, which is empty, too
    try:
        for failing in (store.check, lambda: store.write([("ann", [Event("i1", 1)])])):
            with pytest.raises(sa.exc.OperationalError):
                failing()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    store.check()
    assert store.events("ann") == []
    store.close()


def test_readiness_tries_the_store_once_in_a_while(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("marsrec.serve.service.CHECK_SECONDS", 60.0)
    client = start(folders["mars-t"])
    tried = []
    store = client.app.state.service.store
    check = store.check
    store.check = lambda: (tried.append(1), check())
    assert [ready(client) for _ in range(20)] == [200] * 20
    assert len(tried) == 1


def test_removing_an_event_leaves_the_others_where_they_are(opened: Open) -> None:
    store = opened()
    events = [Event(f"i{number}", number) for number in range(1000)]
    store.write([("ann", events)])
    statements: list[str] = []
    sa.event.listen(store.engine, "before_cursor_execute", lambda c, cursor, text, values, *_: statements.append(text))
    assert store.write([("ann", Removal(events[1]))]) == [1]
    assert not any(text.startswith("INSERT INTO marsrec_events") for text in statements)
    ((epoch, count),) = store.versions(["ann"]).values()
    assert count == 999
    assert store.write([("ann", [events[1], Event("x", 5)])]) == [2]
    assert store.events("ann", after=999, epoch=epoch) == [events[1], Event("x", 5)]
    assert store.events("ann") == [events[0], *events[2:], events[1], Event("x", 5)]
    assert store.write([("ann", Removal(Event("x", 5))), ("ann", [Event("y", 6)])]) == [1, 1]
    assert store.events("ann", after=1000) == [Event("y", 6)]
    assert store.versions(["ann"])["ann"][1] == len(store.events("ann")) == 1001
    assert all(store.write([("ann", Removal(event))]) == [1] for event in store.events("ann")[:20])
    assert store.count() == 981


@pytest.fixture
def row_locked(opened: Open) -> Iterator[Store]:
    """A store in which somebody else holds the row of ann."""
    store = opened()
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite locks no rows")
    store.write([("ann", [Event("i1", 1)])])
    with store.engine.connect() as other:
        other.execute(sa.text("SELECT * FROM marsrec_users FOR UPDATE"))
        yield store


def test_who_is_locked_is_taken_out_of_the_batch(row_locked: Store) -> None:
    held, there, removed = row_locked.write(
        [("ann", [Event("i2", 2)]), ("bob", [Event("i1", 1)]), ("ann", Removal())], patience=0.01
    )
    assert isinstance(held, LockedError)
    assert isinstance(removed, LockedError)
    assert there == 1
    assert row_locked.events("ann") == [Event("i1", 1)]
    assert row_locked.events("bob") == [Event("i1", 1)]


def test_others_do_not_wait_for_who_is_locked(
    folders: dict[str, Path], start: Start, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    if opened().engine.dialect.name == "sqlite":
        pytest.skip("SQLite locks no rows")
    monkeypatch.setattr("marsrec.serve.service.LOCKED_SECONDS", 0.5)
    client = start(folders["mars-t"], store=opened.url)  # type: ignore[attr-defined]
    assert client.post("/v1/users/ann/events", json=EVENT).json()["new"] == 1
    answers = []
    with opened().engine.connect() as other:
        other.execute(sa.text("SELECT * FROM marsrec_users FOR UPDATE"))
        blocked = threading.Thread(target=lambda: answers.append(client.post("/v1/users/ann/events", json=EVENT)))
        blocked.start()
        for user in range(3):
            assert client.post(f"/v1/users/user{user}/events", json=EVENT).json()["new"] == 1
        blocked.join()
    assert [(answer.status_code, answer.json()["error"]["code"]) for answer in answers] == [(503, "store_locked")]
    assert client.post("/v1/users/ann/events", json=EVENT).json()["new"] == 0


def test_a_long_history_is_read_while_others_are_answered(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(histories, "LONG", 50)
    client = start(folders["mars-t"])
    for user, count in (("long", 60), ("other", 3)):
        body = {"events": [{"item": f"i{n % 9}", "time": START + 10 * n} for n in range(count)]}
        assert client.post(f"/v1/users/{user}/events", json=body).json()["new"] == count
    first = client.get("/v1/users/long/recommendations").json()
    late = {"events": [{"item": "i9", "time": START + 5}]}
    client.post("/v1/users/long/events", json=late)
    begun, go, build, answers = threading.Event(), threading.Event(), Sessions._build, []

    def waiting(self: Sessions, user: str, epoch: int) -> object:
        if user == "long":
            begun.set()
            assert go.wait(20)
        return build(self, user, epoch)

    monkeypatch.setattr(Sessions, "_build", waiting)
    reader = threading.Thread(target=lambda: answers.append(client.get("/v1/users/long/recommendations").json()))
    reader.start()
    assert begun.wait(20)
    assert client.get("/v1/users/other/recommendations").status_code == 200
    assert answers == []
    go.set()
    reader.join()
    assert answers[0]["at"] == first["at"]
    assert client.get("/v1/users/long").json()["events"] == 61


def test_a_lost_store_says_what_was_lost(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'events.db'}", "s")
    with sqlite3.connect(tmp_path / "events.db") as database:
        database.execute("DELETE FROM marsrec_store")
    database.close()
    with pytest.raises(LostError, match="the event store has lost what it says of itself"):
        store.check()
    store.close()
