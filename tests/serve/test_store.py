"""The event store, on both databases alike."""

import os
import signal
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from marsrec.errors import DataError, SettingsError
from marsrec.serve.store import SCHEMA, Event, FullError, Removal, Store

Open = Callable[..., Store]


@pytest.fixture(params=["sqlite", "postgres"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Open]:
    """Opens the same, at first empty, store as often as one likes."""
    stores: list[Store] = []
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'events.db'}"
    else:
        if not (server := os.environ.get("MARSREC_TEST_POSTGRES")):
            pytest.skip("needs PostgreSQL: set MARSREC_TEST_POSTGRES to the URL of a database for tests")
        schema = f"test_{uuid.uuid4().hex}"
        admin = sa.create_engine(sa.make_url(server).set(drivername="postgresql+psycopg"))
        with admin.begin() as connection:
            connection.execute(sa.text(f"CREATE SCHEMA {schema}"))
            # Stores find their tables by the path of a role's own schema.
            connection.execute(sa.text(f"CREATE ROLE {schema} LOGIN"))
            connection.execute(sa.text(f"GRANT ALL ON SCHEMA {schema} TO {schema}"))
            connection.execute(sa.text(f"ALTER ROLE {schema} SET search_path = {schema}"))
        url = sa.make_url(server).set(username=schema).render_as_string(hide_password=False)

    def make(unit: str = "s", **options: int) -> Store:
        stores.append(Store(url, unit, **options))
        return stores[-1]

    make.url = url  # type: ignore[attr-defined]
    yield make
    for store in stores:
        store.close()
    if request.param == "postgres":
        with admin.begin() as connection:
            connection.execute(sa.text(f"DROP SCHEMA {schema} CASCADE"))
            connection.execute(sa.text(f"DROP OWNED BY {schema}"))
            connection.execute(sa.text(f"DROP ROLE {schema}"))
        admin.dispose()


def test_events_are_kept_once_in_the_order_in_which_they_came(opened: Open) -> None:
    store = opened()
    tea, milk, early = Event("tea", 20), Event("milk", 20), Event("tea", 10)
    assert store.write([("ann", [tea, milk, tea]), ("bob", [tea])]) == [2, 1]
    assert store.write([("ann", [tea, early]), ("ann", [early, milk])]) == [1, 0]
    assert store.events("ann") == [tea, milk, early]
    assert store.events("ann", after=2) == [early]
    assert counts(store, "ann", "bob", "eve") == {"ann": 3, "bob": 1}
    assert store.count() == 4
    store.check()
    assert store.write([("ann", [])]) == [0]
    assert opened().events("ann") == [tea, milk, early]  # who opens it later finds the same


def counts(store: Store, *users: str) -> dict[str, int]:
    return {user: events for user, (_, events) in store.versions(users).items()}


def test_removed_events_are_gone_and_a_new_epoch_tells_it(opened: Open) -> None:
    store = opened()
    tea, milk, soap = Event("tea", 20), Event("milk", 20), Event("soap", 30)
    store.write([("ann", [tea, milk, soap]), ("bob", [tea])])
    before = store.versions(["ann", "bob"])
    assert store.write([("ann", Removal(Event("tea", 21))), ("eve", Removal())]) == [0, 0]
    assert store.versions(["ann", "bob"]) == before  # nothing happened
    assert store.write([("ann", Removal(milk)), ("ann", Removal(milk))]) == [1, 0]
    after = store.versions(["ann", "bob"])
    assert after["bob"] == before["bob"]
    assert after["ann"][0] != before["ann"][0]
    assert store.events("ann") == [tea, soap]
    assert store.write([("ann", [milk])]) == [1]  # in one epoch numbers go on
    assert store.versions(["ann"])["ann"] == (after["ann"][0], 3)
    assert store.events("ann", after=2) == [milk]
    assert store.events("ann", after=2, epoch=after["ann"][0]) == [milk]
    assert store.events("ann", after=2, epoch=before["ann"][0]) == []
    assert store.write([("ann", Removal()), ("bob", [milk]), ("ann", [soap])]) == [3, 1, 1]
    assert store.events("ann") == [soap]
    assert store.versions(["ann"])["ann"][0] not in (before["ann"][0], after["ann"][0])
    store.write([("ann", Removal())])
    assert store.search("ann", 10) == []  # not even the name stays
    assert opened().events("bob") == [tea, milk]


def test_any_text_is_an_id(opened: Open) -> None:
    store = opened()
    names = ["007", "7", " ", "a'b\"c", "%", "_", "日本", "😀", "x" * 200, "null", "a\\b"]
    for name in names:
        assert store.write([(name, [Event(name, 2**62)])]) == [1]
    for name in names:
        assert store.events(name) == [Event(name, 2**62)]
    assert store.search("%", 10) == ["%"]
    assert store.search("_", 10) == ["_"]
    assert store.search("\\", 10) == ["a\\b"]


def test_search_finds_beginnings_first_in_any_case(opened: Open) -> None:
    store = opened()
    store.write([(name, [Event("tea", 1)]) for name in ("joann", "Anna", "bob", "ANN")])
    assert store.search("ann", 10) == ["ANN", "Anna", "joann"]
    assert store.search("ann", 2) == ["ANN", "Anna"]
    assert len(store.search("", 10)) == 4


def test_a_user_has_a_limit_and_others_are_not_touched_by_it(opened: Open) -> None:
    store = opened(user_events=3)
    full, fine = store.write([("ann", [Event("tea", time) for time in range(4)]), ("bob", [Event("tea", 1)])])
    assert isinstance(full, FullError)
    assert fine == 1
    assert store.events("ann") == []
    assert store.write([("ann", [Event("tea", time) for time in range(3)])]) == [3]
    assert store.write([("ann", [Event("tea", 0)])]) == [0]  # nothing new is no more


def test_writers_at_the_same_time_lose_and_double_nothing(opened: Open) -> None:
    """Four writers with connections of their own send overlapping events; versions never skip one."""
    opened()
    events = [Event(f"i{number}", number) for number in range(40)]
    new: list[int] = []
    failures: list[BaseException] = []

    def write(shift: int) -> None:
        try:
            store = opened()
            for number in range(len(events)):
                event = events[(number + shift) % len(events)]
                users = ["ann", "bob"] if shift % 2 else ["bob", "ann"]
                new.extend(outcome for outcome in store.write([(user, [event]) for user in users]))
        except BaseException as error:
            failures.append(error)

    def watch() -> None:
        store, seen = opened(), []
        while len(seen) < len(events) and not failures:
            seen += store.events("ann", after=len(seen))
        watched.extend(seen)

    watched: list[Event] = []
    threads = [threading.Thread(target=write, args=(10 * number,)) for number in range(4)]
    threads.append(threading.Thread(target=watch))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert sum(new) == 2 * len(events)
    store = opened()
    for user in ("ann", "bob"):
        assert sorted(store.events(user), key=lambda event: event.time) == events
    assert watched == store.events("ann")  # a reader who goes on from where it was has seen every event


def test_who_is_forgotten_while_others_write_is_whole(opened: Open) -> None:
    """One writer adds, one forgets: no error, and what is there in the end was added after the last removal."""
    opened()
    failures: list[BaseException] = []
    removed: list[int] = []

    def add() -> None:
        store = opened()
        for number in range(60):
            assert store.write([("ann", [Event(f"i{number}", number)])]) == [1]

    def forget() -> None:
        store = opened()
        for _ in range(60):
            removed.extend(outcome for outcome in store.write([("ann", Removal())]) if isinstance(outcome, int))

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (add, forget)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    left = opened().events("ann")
    assert len(left) + sum(removed) == 60
    assert left == [Event(f"i{number}", number) for number in range(60 - len(left), 60)]


def test_a_newer_store_or_one_of_another_unit_is_refused(opened: Open) -> None:
    store = opened("ms")
    with pytest.raises(DataError, match="its times are in ms, those of the model in s"):
        opened("s")
    for schema in (SCHEMA - 1, SCHEMA + 1):
        with store.engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE marsrec_store SET value = '{schema}' WHERE name = 'schema'"))
        with pytest.raises(DataError, match=f"a store of schema {schema}, this version reads schema {SCHEMA}"):
            opened("ms")


def test_sqlite_waits_for_the_disk(tmp_path: Path) -> None:
    store = Store(f"sqlite:///{tmp_path / 'events.db'}", "s")
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL
    store.close()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "note.db").write_text("this is not a database, it is a note of some length" * 30)
    with pytest.raises(DataError, match=r"note.db: not an event store that can be opened \(file is not a database"):
        Store(f"sqlite:///{tmp_path / 'note.db'}", "s")
    with pytest.raises(DataError, match="nowhere: there is no such folder for the event store"):
        Store(f"sqlite:///{tmp_path / 'nowhere' / 'events.db'}", "s")
    with pytest.raises(DataError, match=r"tester:\*\*\*@127.0.0.1:1/events: not an event store that can be opened"):
        Store("postgresql://tester:secret@127.0.0.1:1/events", "s")
    for url, message in (("mysql://localhost/x", "found mysql"), ("no url", "a path of an SQLite file, or a URL")):
        with pytest.raises(SettingsError, match=message):
            Store(url, "s")
    for url in ("sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"):
        with pytest.raises(SettingsError, match="a store in memory loses all events"):
            Store(url, "s")
    with sqlite3.connect(tmp_path / "half.db") as half:
        half.execute("CREATE TABLE marsrec_store (name TEXT, value TEXT)")
    with pytest.raises(DataError, match="a store of schema None"):
        Store(f"sqlite:///{tmp_path / 'half.db'}", "s")


def test_a_database_that_goes_silent_is_given_up(opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    store = opened()
    if store.engine.dialect.name == "sqlite":
        pytest.skip("SQLite is no server")
    monkeypatch.setattr("marsrec.serve.postgres.SILENT_SECONDS", 0.3)
    store.write([("ann", [Event("tea", 1)])])
    with store.engine.connect() as connection:
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        driver = connection.connection.dbapi_connection
        assert driver is not None
        assert driver.info.get_parameters()["tcp_user_timeout"] == "10000"  # for a route that is lost
    try:
        os.kill(backend, signal.SIGSTOP)
    except (ProcessLookupError, PermissionError):
        pytest.skip("the database is not of this machine, or not ours")
    try:
        assert counts(store, "ann") == {"ann": 1}  # by a new connection
        with pytest.raises(sa.exc.OperationalError, match="the database is silent"):
            _stopped(store)
    finally:
        os.kill(backend, signal.SIGCONT)
    assert counts(store, "ann") == {"ann": 1}


def _stopped(store: Store) -> None:
    """Ask by a connection whose backend stops in the middle."""
    with store.engine.connect() as connection:
        backend = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        os.kill(backend, signal.SIGSTOP)
        try:
            connection.exec_driver_sql("SELECT 1")
        finally:
            os.kill(backend, signal.SIGCONT)
