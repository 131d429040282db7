"""Settings of a server."""

import ipaddress
import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from marsrec.errors import SettingsError
from marsrec.settings import Settings

_TOKEN = re.compile(r"[!-~][ -~]{14,998}[!-~]")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen from anywhere.

    Examples
    --------
    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return host.lower() == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ServeSettings(Settings):
    """Models, address, store and limits of a server."""

    models: tuple[Path, ...] = Field(min_length=1, max_length=8)
    """Folders that `marsrec fit` wrote. The first answers unless a request names another by its folder's name."""
    host: str = "127.0.0.1"
    """Address to listen on. Any address that other machines can reach needs a token."""
    port: int = Field(8000, ge=0, le=65535)
    """Port to listen on; 0 takes a free one."""
    token: SecretStr | None = None
    """Bearer token that requests must send: at least 16 characters of printable ASCII."""
    store: str | None = None
    """The event store: an SQLite file or a postgresql:// URL. If not given, a file beside the first model."""
    at: Literal["now"] | None = None
    """Request time of requests without one: `now` is the server's clock. If not given, it is the end of the log or
    the latest event, whichever is later."""
    cache_mb: int = Field(256, ge=1)
    """Memory in MB for live sessions, per model, including the overhead of objects."""
    workers: int = Field(1, ge=1, le=256)
    """Processes that answer, on one port. Each has its own models, sessions and limits."""
    threads: int | None = Field(None, ge=1)
    """Threads of torch. If not given, as many as there are cores."""
    batch: int = Field(64, ge=1, le=1024)
    """Histories that are computed together."""
    batch_wait_ms: float = Field(0.0, ge=0, le=1000)
    """Milliseconds that a request waits for others to be computed together with. 0 takes only those that have
    arrived."""
    queue: int = Field(512, ge=64)
    """Histories and writes that may wait; further requests get 503."""
    requests: int = Field(1024, ge=1)
    """Requests for /v1 and /metrics at a time; further ones get 503."""
    body_bytes: int = Field(4 * 2**20, ge=1024)
    """Largest body of a request, in bytes."""
    ann_from: int | None = Field(None, ge=1)
    """Rank catalogs of at least this many items by an approximate index, and smaller ones exactly."""
    future: int = Field(300, ge=0, le=2**40)
    """Seconds that a posted event may lie ahead of the server's clock, or of the end of the log if that is later;
    further ones are refused."""
    user_events: int = Field(100_000, ge=1)
    """Events that the store keeps of one user; further ones are refused."""

    @field_validator("token", mode="before")
    @classmethod
    def _fits_a_header(cls, token: Any) -> Any:
        secret = token.get_secret_value() if isinstance(token, SecretStr) else token
        if secret is not None and not (isinstance(secret, str) and _TOKEN.fullmatch(secret)):
            raise SettingsError(  # an error of pydantic would show it
                "a token has 16 to 1,000 characters of printable ASCII, and no space at its ends."
            )
        return token

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.loopback and self.token is None:
            raise SettingsError(
                f"{self.host} can be reached from other machines: give a token of at least 16 characters, "
                "or listen on 127.0.0.1."
            )
        names = [self.name_of(folder) for folder in self.models]
        if len(set(names)) < len(names):
            raise SettingsError(f"models are distinguished by their folders' names; found {', '.join(names)}.")
        return self

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches the address."""
        return is_loopback(self.host)

    @staticmethod
    def name_of(folder: Path) -> str:
        """What requests call the model in a folder."""
        return folder.resolve().name

    @property
    def store_url(self) -> str:
        """The event store as a URL of SQLAlchemy."""
        if self.store is not None and "://" in self.store:
            return self.store
        first = self.models[0].resolve()
        return f"sqlite:///{Path(self.store) if self.store else first.with_name(f'{first.name}.events.db')}"
