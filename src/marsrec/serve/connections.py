"""Connections: where they come in, and how many there may be, so that one too many does not cost the others theirs."""

import socket
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from marsrec.errors import SettingsError
from marsrec.serve.settings import ServeSettings

MOST = 65_536
"""Connections where the system sets no limit."""
_KEPT_FREE = 128
"""Descriptors that are left for models, the store, and what else is opened."""
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 21\r\n"
    b"Retry-After: 1\r\nConnection: close\r\n\r\nToo many connections."
)


class HttpProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """HTTP as uvicorn speaks it. A connection beyond the limit is told so and closed; all others go on.

    uvicorn itself, at its limit, refuses every request of every connection.
    """

    most = MOST

    def connection_made(self, transport: Any) -> None:
        """Take a connection, or refuse it."""
        super().connection_made(transport)
        if len(self.connections) > self.most:
            transport.write(_REFUSAL)
            transport.close()


def descriptors() -> int:
    """How many connections the descriptors of this process leave room for, of which it takes as many as it may."""
    try:
        import resource
    except ModuleNotFoundError:  # Windows
        return MOST
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = MOST if hard == resource.RLIM_INFINITY else min(hard, MOST)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed - _KEPT_FREE, allowed // 2)


def listen(settings: ServeSettings) -> socket.socket:
    """A socket that listens where the settings say."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    try:
        listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
        # Answers go out at once: else the body would wait for the acknowledgement of the head, 40 ms each time.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        reason = error.strerror or error
        raise SettingsError(
            f"{settings.host} port {settings.port} cannot be listened on ({reason}). Choose another --port or --host."
        ) from None


def address(listener: socket.socket, settings: ServeSettings) -> str:
    """Host and port of a socket that listens, as they stand in an address."""
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{host}:{listener.getsockname()[1]}"
