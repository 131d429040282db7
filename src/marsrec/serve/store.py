"""The event store: what users did, durable before the answer, in SQLite or PostgreSQL."""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, OperationalError, SQLAlchemyError

from marsrec.data.times import TimeUnit
from marsrec.errors import DataError, MarsrecError, SettingsError, needs

SCHEMA = 2
LOCK_SECONDS = 0.2
"""How long PostgreSQL waits for a row that somebody else has locked, while others wait for the same transaction."""
_LOCKED = ("55P03", "40P01")
"""What PostgreSQL calls a lock that was not given in time, and one that never would have been."""

_tables = sa.MetaData()
_facts = sa.Table(
    "marsrec_store", _tables, sa.Column("name", sa.Text, primary_key=True), sa.Column("value", sa.Text, nullable=False)
)
_users = sa.Table(
    "marsrec_users",
    _tables,
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("events", sa.BigInteger, nullable=False),
    sa.Column("epoch", sa.BigInteger, nullable=False),
)
_events = sa.Table(
    "marsrec_events",
    _tables,
    sa.Column("user", sa.Text, primary_key=True),
    sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
    sa.Column("item", sa.Text, nullable=False),
    sa.Column("time", sa.BigInteger, nullable=False),
    sa.UniqueConstraint("user", "item", "time"),
)


@dataclass(frozen=True)
class Event:
    """An item that a user took at a time, in the unit of the store. Ids are text here."""

    item: str
    time: int


@dataclass(frozen=True)
class Removal:
    """An event to forget, or all of a user."""

    event: Event | None = None


Write = tuple[str, Sequence[Event] | Removal]
"""A user, and what to keep or to forget."""

Version = tuple[int, int]
"""An epoch and a number of events. Within an epoch events are only added; a removal begins another one. Nobody has
epoch 0."""


class FullError(MarsrecError):
    """A user has as many events as the store keeps of one."""


class LockedError(MarsrecError):
    """Somebody else has locked a user's events in the database."""


class LostError(MarsrecError):
    """The file of the store is no longer where it was opened."""


class Store:
    """Events of users, each kept once, numbered per user in the order in which they were committed.

    How many events a user has is the version of that user's history: whoever has read so many reads on from there, and
    misses nothing that another process has written. Where events were removed, the epoch changes; their numbers stay
    unused, so that forgetting one costs the same however many there are.

    Parameters
    ----------
    url : str
        `sqlite:///path` or `postgresql://user@host/database`.
    unit : {"s", "ms", "us", "ns"}
        Unit of the times. A store keeps the one that it was made with.
    user_events : int
        How many events it keeps of one user.
    """

    def __init__(self, url: str, unit: TimeUnit, user_events: int = 100_000) -> None:
        self.engine = _engine(url)
        self.place = self.engine.url.render_as_string(hide_password=True)
        self.user_events = user_events
        try:
            with self._writing() as connection:
                if self.engine.dialect.name == "postgresql":  # two servers may start at once
                    connection.execute(sa.text("SELECT pg_advisory_xact_lock(7264937)"))
                self._prepare(connection, unit)
        except SQLAlchemyError as error:
            self.close()
            raise DataError(
                f"{self.place}: not an event store that can be opened ({reason(error)}). "
                "Name a new file, or a database that is running."
            ) from error
        except MarsrecError:
            self.close()
            raise
        self._files = self._found() if self.engine.dialect.name == "sqlite" else {}

    def _found(self) -> dict[Path, tuple[int, int]]:
        """The files of an SQLite store, and which they are."""
        with self.engine.connect() as connection:
            database = str(connection.exec_driver_sql("PRAGMA database_list").all()[0][2])
        found = {path: _identity(path) for path in (Path(database), Path(f"{database}-wal"))}
        return {path: identity for path, identity in found.items() if identity is not None}

    def _check_files(self) -> None:
        """Raise if what is written now would be gone after a restart, because a file was deleted or replaced."""
        for path, identity in self._files.items():
            if _identity(path) != identity:
                raise LostError(f"{path}: the file of the event store was moved, deleted or replaced.")

    def _prepare(self, connection: sa.Connection, unit: TimeUnit) -> None:
        if not sa.inspect(connection).has_table(_facts.name):
            _tables.create_all(connection)
            facts = [{"name": "schema", "value": str(SCHEMA)}, {"name": "unit", "value": unit}]
            connection.execute(sa.insert(_facts), facts)
            return
        facts_found = {row.name: row.value for row in connection.execute(sa.select(_facts))}
        if (schema := facts_found.get("schema")) != str(SCHEMA):
            raise DataError(
                f"{self.place}: a store of schema {schema}, this version reads schema {SCHEMA}. "
                "Use the version of marsrec that wrote it, or a newer one."
            )
        if (found := facts_found.get("unit")) != unit:
            raise DataError(
                f"{self.place}: its times are in {found}, those of the model in {unit}. Name another store."
            )

    def write(self, writes: Sequence[Write], patience: float = LOCK_SECONDS) -> list[int | Exception]:
        """Keep and forget events of some users in one transaction, durable when this returns.

        A user whom somebody else has locked for longer than `patience` seconds is left out.

        Returns
        -------
        list
            For each write how many of its events are new, or were removed, or why nothing was done.
        """
        outcomes: list[int | Exception] = [0] * len(writes)
        # Everybody locks users in the same order, so that nobody waits for one who waits for him.
        places = sorted(range(len(writes)), key=lambda place: writes[place][0])
        while places:
            place = places[0]
            try:
                with self._writing(patience) as connection:
                    for place in places:
                        outcomes[place] = self._change(connection, *writes[place])
                break
            except OperationalError as error:
                if getattr(error.orig, "sqlstate", None) not in _LOCKED:
                    raise
                outcomes[place] = LockedError("somebody else has locked the events of this user.")
                places.remove(place)  # the others begin again, and wait no second time
                patience = min(patience, 0.01)
        self._check_files()
        return outcomes

    def _change(self, connection: sa.Connection, user: str, change: Sequence[Event] | Removal) -> int | Exception:
        try:
            if isinstance(change, Removal):
                return self._remove(connection, user, change.event)
            return self._add(connection, user, change)
        except FullError as error:
            return error

    def _remove(self, connection: sa.Connection, user: str, event: Event | None) -> int:
        mine, own = _users.c.user == user, _events.c.user == user
        count = connection.execute(sa.select(_users.c.events).where(mine).with_for_update()).scalar_one_or_none()
        if count is None:
            return 0
        number = 1
        if event is not None:
            this = sa.select(_events.c.number).where(own, _events.c.item == event.item, _events.c.time == event.time)
            number = connection.execute(this).scalar_one_or_none() or 0
            if number == 0:
                return 0
        if event is None or count == 1:
            connection.execute(sa.delete(_events).where(own))
            connection.execute(sa.delete(_users).where(mine))  # not even the name stays
            return int(count)
        connection.execute(sa.delete(_events).where(own, _events.c.number == number))
        connection.execute(sa.update(_users).where(mine).values(events=count - 1, epoch=_epoch()))
        return 1

    def _add(self, connection: sa.Connection, user: str, events: Sequence[Event]) -> int:
        insert = self._insert_into(_users)
        mine, count = _users.c.user == user, None
        while count is None:  # a user may be forgotten between the two statements
            connection.execute(insert.values(user=user, events=0, epoch=_epoch()).on_conflict_do_nothing())
            count = connection.execute(sa.select(_users.c.events).where(mine).with_for_update()).scalar_one_or_none()
        different = list(dict.fromkeys(events))
        # Two parameters for an event of a post, which has at most 1,000; SQLite takes 32,766.
        pairs = [(event.item, event.time) for event in different]
        kept = sa.select(_events.c.item, _events.c.time).where(
            _events.c.user == user, sa.tuple_(_events.c.item, _events.c.time).in_(pairs)
        )
        there = {Event(item, time) for item, time in connection.execute(kept)}
        fresh = [event for event in different if event not in there]
        if count + len(fresh) > self.user_events:
            raise FullError(
                f"user {user!r} has {count:,} events, and the store keeps {self.user_events:,} of one user."
            )
        if fresh:
            last = connection.execute(sa.select(_last(user))).scalar_one()
            _insert(connection, user, fresh, after=last or 0)
            connection.execute(sa.update(_users).where(mine).values(events=count + len(fresh)))
        return len(fresh)

    def _insert_into(self, table: sa.Table) -> Any:
        return (sqlite.insert if self.engine.dialect.name == "sqlite" else postgresql.insert)(table)

    def versions(self, users: Sequence[str]) -> dict[str, Version]:
        """Versions of these users' histories; users without any event are left out."""
        with self.engine.connect() as connection:
            chosen = sa.select(_users).where(_users.c.user.in_(users), _users.c.events > 0)
            return {row.user: (row.epoch, row.events) for row in connection.execute(chosen)}

    def events(self, user: str, after: int = 0, epoch: int | None = None) -> list[Event]:
        """The events of a user but for the first `after` of an epoch, in the order in which they came.

        None at all if the user's epoch is another one than the one that is given.
        """
        with self.engine.connect() as connection:
            return self._read(connection, user, after, epoch)

    def _read(self, connection: sa.Connection, user: str, after: int, epoch: int | None = None) -> list[Event]:
        chosen = sa.select(_events.c.item, _events.c.time).where(_events.c.user == user).order_by(_events.c.number)
        if after:
            # Events are removed before an epoch begins, so that within it numbers run ahead of counts by the same.
            count = sa.select(_users.c.events).where(_users.c.user == user).scalar_subquery()
            ahead = _last(user) - count
            chosen = chosen.where(_events.c.number > after + sa.case((ahead > 0, ahead), else_=0))
        if epoch is not None:  # in the same statement: a removal may come between two
            chosen = chosen.join(_users, _users.c.user == _events.c.user).where(_users.c.epoch == epoch)
        return [Event(item, time) for item, time in connection.execute(chosen)]

    def search(self, text: str, limit: int) -> list[str]:
        """Users with events whose id has `text` in it, those that begin with it first."""
        begins = _users.c.user.istartswith(text, autoescape=True)
        chosen = (
            sa.select(_users.c.user)
            .where(_users.c.user.icontains(text, autoescape=True), _users.c.events > 0)
            .order_by(sa.case((begins, 0), else_=1), sa.func.length(_users.c.user), _users.c.user)
            .limit(limit)
        )
        with self.engine.connect() as connection:
            return list(connection.execute(chosen).scalars())

    def count(self) -> int:
        """How many events there are."""
        with self.engine.connect() as connection:
            return int(connection.execute(sa.select(sa.func.coalesce(sa.func.sum(_users.c.events), 0))).scalar_one())

    def check(self) -> None:
        """Raise if the store could not keep an event: if a table is missing, or the disk takes nothing."""
        with self._writing() as connection:
            for table in (_users, _events):
                connection.execute(sa.select(*table.c).limit(1)).first()
            schema = sa.select(_facts.c.value).where(_facts.c.name == "schema")
            if connection.execute(schema).scalar_one_or_none() != str(SCHEMA):
                raise LostError(f"{self.place}: the event store has lost what it says of itself.")
            tried = {"value": secrets.token_hex(8)}  # another value each time: the same one would not be written
            insert = self._insert_into(_facts).values(name="tried", **tried)
            connection.execute(insert.on_conflict_do_update(index_elements=["name"], set_=tried))
        self._check_files()

    def close(self) -> None:
        """Let go of all connections."""
        self.engine.dispose()

    @contextmanager
    def _writing(self, patience: float = 10.0) -> Iterator[sa.Connection]:
        with self.engine.connect().execution_options(writes=True) as connection, connection.begin():
            if self.engine.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SET LOCAL lock_timeout = {max(1, round(1000 * patience))}")
            yield connection


def _last(user: str) -> sa.ScalarSelect[int]:
    """The number of a user's latest event."""
    numbered = _events.alias()
    return sa.select(sa.func.max(numbered.c.number)).where(numbered.c.user == user).scalar_subquery()


def _identity(path: Path) -> tuple[int, int] | None:
    """Which file it is that has a path, if any."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _insert(connection: sa.Connection, user: str, events: Sequence[Event], after: int) -> None:
    rows = [
        {"user": user, "number": number, "item": event.item, "time": event.time}
        for number, event in enumerate(events, start=after + 1)
    ]
    connection.execute(sa.insert(_events), rows)


def _epoch() -> int:
    """A number that no epoch of a user had before, by all likelihood."""
    return 1 + secrets.randbits(62)


def _engine(url: str) -> sa.Engine:
    try:
        parsed = sa.make_url(url)
        if parsed.get_backend_name() == "sqlite":
            return _sqlite(parsed)
        if parsed.get_backend_name() != "postgresql":
            raise SettingsError(f"a store is an SQLite file or a postgresql:// URL; found {parsed.get_backend_name()}.")
        with needs("postgres", "PostgreSQL"):
            from marsrec.serve.postgres import engine

        return engine(parsed)
    except (ArgumentError, NoSuchModuleError):
        raise SettingsError("a store is a path of an SQLite file, or a URL like postgresql://user@host/name.") from None


def _sqlite(url: sa.URL) -> sa.Engine:
    if not url.database or ":memory:" in url.database or url.query.get("mode") == "memory":
        raise SettingsError("a store in memory loses all events when the server ends. Name a file: --store events.db.")
    folder = Path(url.database.removeprefix("file:")).parent
    if not folder.is_dir():
        raise DataError(f"{folder}: there is no such folder for the event store. Make it, or name another file.")
    engine = sa.create_engine(url, connect_args={"timeout": 10}, hide_parameters=True)

    @sa.event.listens_for(engine, "connect")
    def _connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # transactions begin where SQLAlchemy says, not where the driver guesses
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA secure_delete=ON")  # what is forgotten is overwritten

    @sa.event.listens_for(engine, "begin")
    def _begun(connection: sa.Connection) -> None:
        # A writer takes its turn at once: a reader that turns writer may find that another was faster.
        writes = connection.get_execution_options().get("writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def reason(error: SQLAlchemyError) -> str:
    """What the database says, in a line and without what was to be stored."""
    return str(getattr(error, "orig", None) or error).strip().splitlines()[0]
