"""Connections to PostgreSQL that give up on a database which no longer answers."""

import time
from collections.abc import Generator
from typing import Any

import psycopg
import sqlalchemy as sa

SILENT_SECONDS = 15.0
"""How long an answer is waited for. The database itself ends what takes longer than 10 seconds."""


class SilentError(psycopg.OperationalError):
    """The database has not answered in time."""


class Connection(psycopg.Connection[Any]):
    """A connection that is closed if the database goes silent. The driver itself would wait for ever."""

    def wait(self, gen: Any, *arguments: Any, **options: Any) -> Any:
        """Wait for an answer, but not for longer than `SILENT_SECONDS`."""
        try:
            return super().wait(_in_time(gen), *arguments, **options)
        except SilentError:
            self.close()
            raise


def _in_time(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """The steps of an exchange, which the driver resumes several times a second also when nothing has come."""
    until = time.monotonic() + SILENT_SECONDS
    try:
        awaited = next(steps)
        while True:
            ready = yield awaited
            if not ready and time.monotonic() > until:
                raise SilentError("the database is silent")
            awaited = steps.send(ready)
    except StopIteration as end:
        return end.value


def engine(url: sa.URL) -> sa.Engine:
    """An engine whose answers mean that the disk has it, and that holds nobody for ever."""
    made = sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,
        pool_timeout=5,
        hide_parameters=True,
        connect_args={
            "connect_timeout": 5,
            "options": "-c statement_timeout=10000 -c lock_timeout=10000 -c synchronous_commit=on",
            # A lost route: what was sent, and what is awaited, must be noticed in time.
            "tcp_user_timeout": 10_000,
            "keepalives_idle": 5,
            "keepalives_interval": 2,
            "keepalives_count": 3,
        },
    )

    @sa.event.listens_for(made, "do_connect")
    def _connect(dialect: Any, record: Any, arguments: list[Any], options: dict[str, Any]) -> Connection:
        return Connection.connect(*arguments, **options)

    return made
