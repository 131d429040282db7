"""Writes of the event store fail at every statement and at every page: what was acknowledged is there, and no more."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from marsrec.errors import MarsrecError
from marsrec.serve.store import Event, Removal, Store, Write

BEFORE = {"ann": [Event("tea", 10), Event("mug", 20), Event("pot", 30)], "bob": [Event("tea", 5)]}
CHANGES: dict[str, list[Write]] = {
    "post": [("ann", [Event("cup", 40), Event("tea", 10)]), ("eve", [Event("mug", 7)])],
    "delete an event": [("ann", Removal(Event("tea", 10)))],
    "delete a user": [("bob", Removal())],
    "together": [("ann", Removal(Event("mug", 20))), ("bob", Removal()), ("eve", [Event("mug", 7)])],
}
Content = dict[str, list[Event]]


@pytest.fixture
def tmp_path(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is such a folder: nobody cuts the power of a test, and each case waits for the disk."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some users, closed."""
    path = tmp_path_factory.mktemp("store") / "events.db"
    store = Store(f"sqlite:///{path}", "s")
    store.write(list(BEFORE.items()))
    store.close()
    return path


def content(store: Store) -> Content:
    return {user: found for user in ("ann", "bob", "eve") if (found := store.events(user))}


def opened(full: Path, folder: Path) -> Store:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    shutil.copy(full, folder / "events.db")
    return Store(f"sqlite:///{folder / 'events.db'}", "s")


def after(full: Path, folder: Path, change: list[Write]) -> Content:
    store = opened(full, folder)
    store.write(change)
    store.close()
    again = Store(f"sqlite:///{folder / 'events.db'}", "s")
    found = content(again)
    again.close()
    return found


@contextmanager
def failing(engine: sa.Engine, at: int) -> Iterator[list[str]]:
    """The statement of this number fails, from 1 on; a commit counts as one."""
    statements: list[str] = []

    def met(statement: str) -> None:
        statements.append(statement)
        if len(statements) == at:
            raise sa.exc.OperationalError(statement, {}, OSError("disk I/O error"))

    def executed(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        met(statement)

    def committed(connection: Any) -> None:
        met("COMMIT")

    sa.event.listen(engine, "before_cursor_execute", executed)
    sa.event.listen(engine, "commit", committed)
    try:
        yield statements
    finally:
        sa.event.remove(engine, "before_cursor_execute", executed)
        sa.event.remove(engine, "commit", committed)


def holds(store: Store, done: bool, new: Content) -> None:
    """In this process and after a restart: the new content if that was said, else the old one; and it takes writes."""
    for one in (store, Store(str(store.engine.url), "s")):
        assert content(one) == (new if done else BEFORE)
        assert one.count() == sum(len(events) for events in content(one).values())
        one.check()
    assert store.write([("zoe", [Event("cup", 1)])]) == [1]
    one.close()
    store.close()


@pytest.mark.parametrize("name", CHANGES)
def test_a_statement_fails(full: Path, tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    new, at = after(full, tmp_path / "whole", change), 0
    while True:
        at += 1
        store, done = opened(full, tmp_path / "store"), True
        with failing(store.engine, at) as statements:
            try:
                store.write(change)
            except sa.exc.OperationalError:
                done = False
        holds(store, done, new)
        if done:
            break
        assert len(statements) >= at
    assert at > 4
    print(f"\nstore, {name}: {at - 1} statements")


@contextmanager
def limited(size: int) -> Iterator[None]:
    """No file grows beyond this size, as on a disk that is full."""
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


@pytest.mark.skipif(sys.platform == "win32", reason="no limits of files")
@pytest.mark.parametrize("name", CHANGES)
def test_the_disk_is_full_at_any_page(full: Path, tmp_path: Path, name: str) -> None:
    change, faults, size = CHANGES[name], 0, 0
    new = after(full, tmp_path / "whole", change)
    while True:
        store, done = opened(full, tmp_path / "store"), True
        with limited(size):
            try:
                store.write(change)
            except (sa.exc.SQLAlchemyError, MarsrecError):
                done = False
        holds(store, done, new)
        if done:
            break
        faults, size = faults + 1, size + 1030  # so that the limit falls within a page, within its head, and between
    assert faults > 4
    print(f"\nstore, {name}: {faults} full disks")
