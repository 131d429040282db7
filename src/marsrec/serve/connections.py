"""Connections: where they come in, how many there may be, and how long each may let the server wait.

A client that is silent, sends its request drop by drop or does not take its answer costs a connection and nothing else.
Where connections are scarce, the one whose client has been waited for the longest makes room for the newest.
"""

import asyncio
import errno
import logging
import math
import socket
import time
from typing import Any, ClassVar

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from marsrec.errors import SettingsError
from marsrec.serve.settings import ServeSettings

log = logging.getLogger(__name__)

MOST = 65_536
"""Connections where the system sets no limit."""
HEAD_SECONDS = 5.0
"""How long the head of a request may take to come in, and the rest of a body after its answer."""
HEAD_BYTES = 64 * 1024
"""Bytes of a request beside its body."""
STALLED_SECONDS = 10.0
"""How long an answer may wait for a client that takes nothing of it."""
PROGRESS = 4096
"""Bytes of an answer that a client has to take in that time."""
UNSENT_BYTES = 256 * 2**20
"""Bytes of all answers that wait for their clients. Beyond them the largest is dropped."""
WATCH_SECONDS = 2.5
"""How often each connection is looked at."""
_KEPT_FREE = 128
"""Descriptors that are left for models, the store, and what else is opened."""
_PLAIN = b"Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n"
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\n%bRetry-After: 1\r\nContent-Length: 21\r\n\r\nToo many connections." % _PLAIN
)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\n%bContent-Length: 22\r\n\r\nThe head is too large." % _PLAIN
)


class HttpProtocol(HttpToolsProtocol):
    """HTTP as uvicorn speaks it, with limits of time, size and number.

    uvicorn itself waits for the head of a request as long as it takes, and refuses every request of every connection
    once there are too many.
    """

    most = MOST
    waiting: ClassVar[dict["HttpProtocol", None]] = {}
    """Connections whose clients have to do something next, roughly in the order in which that began."""
    unsent: ClassVar[set["HttpProtocol"]] = set()
    """Connections whose clients are slow to take an answer."""

    def connection_made(self, transport: Any) -> None:
        """Take a connection, in the place of one that only waits, or refuse it."""
        super().connection_made(transport)
        self._complete, self._beside, self._left, self._left_since = True, 0, 0, 0.0
        self._timer = self.loop.call_later(WATCH_SECONDS, self._watch)
        if len(self.connections) > self.most:
            if not self.waiting:
                transport.write(_REFUSAL)
                transport.close()
                return
            next(iter(self.waiting)).drop()
        self._wait(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._timer.cancel()
        self.waiting.pop(self, None)
        self.unsent.discard(self)
        super().connection_lost(exc)

    def drop(self) -> None:
        """Close the connection for the sake of others."""
        self.waiting.pop(self, None)
        self.unsent.discard(self)
        (self.transport.abort if self.transport.get_write_buffer_size() else self.transport.close)()

    # ------------------------------------------------------------- the client

    def _wait(self, seconds: float) -> None:
        self._since, self._patience = self.loop.time(), seconds
        self.waiting[self] = None

    def _watch(self) -> None:
        """Close the connection if its client has taken too long."""
        self._timer = self.loop.call_later(WATCH_SECONDS, self._watch)
        now, left = self.loop.time(), self.transport.get_write_buffer_size()
        if not left or not self._left or left <= self._left - PROGRESS:
            self._left, self._left_since = left, now
        elif now - self._left_since > STALLED_SECONDS:
            self.transport.abort()
        if self in self.waiting and now - self._since > self._patience:
            self.transport.close()  # after what it still has to send

    # ---------------------------------------------------------------- reading

    def data_received(self, data: bytes) -> None:
        """Take what has come, unless there is too much beside bodies: headers, sizes of chunks, trailers."""
        self._beside += len(data)
        super().data_received(data)
        if self._beside > HEAD_BYTES and not self.transport.is_closing():
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_message_begin(self) -> None:
        """Wait for the head of a request."""
        super().on_message_begin()
        self._complete, self._beside = False, 0
        self._since, self._patience = self.loop.time(), HEAD_SECONDS

    def on_headers_complete(self) -> None:
        """Wait for the body; how long is left to who reads it."""
        self._patience = math.inf
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a part of the body, for which as much may come beside it."""
        self._beside -= 2 * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Nothing is waited for: the server has to answer."""
        self._complete = True
        self.waiting.pop(self, None)
        super().on_message_complete()

    # ---------------------------------------------------------------- writing

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the end of one that was answered before."""
        super().on_response_complete()
        self._left = 0
        if self.cycle.response_complete:
            self._wait(self.timeout_keep_alive if self._complete else HEAD_SECONDS)

    def pause_writing(self) -> None:
        """Wait for a client that is slow to take its answer."""
        super().pause_writing()
        self._wait(math.inf)
        self.unsent.add(self)
        sizes = {one: one.transport.get_write_buffer_size() for one in self.unsent}
        total = sum(sizes.values())
        while total > UNSENT_BYTES:
            largest = max(sizes, key=sizes.__getitem__)
            total -= sizes.pop(largest)
            largest.drop()

    def resume_writing(self) -> None:
        """Go on with an answer."""
        super().resume_writing()
        self._left = 0
        self.unsent.discard(self)
        if self.cycle is not None and not self.cycle.response_complete:
            self.waiting.pop(self, None)


class Scarcity:
    """Handler of a loop's errors that tells once in a while, and not each time, that there are no descriptors."""

    SECONDS = 60.0

    def __init__(self) -> None:
        self._told = -math.inf

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Tell an error."""
        error = context.get("exception")
        if not isinstance(error, OSError) or error.errno not in (errno.EMFILE, errno.ENFILE):
            loop.default_exception_handler(context)
        elif time.monotonic() - self._told > self.SECONDS:
            self._told = time.monotonic()
            log.warning("Connections cannot be taken: there are no file descriptors left. Raise `ulimit -n`.")


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


def listen(settings: ServeSettings, patience: float = 0.0) -> socket.socket:
    """A socket that listens where the settings say, as soon as nobody else does, within so many seconds."""
    if (most := descriptors()) < settings.requests:
        log.warning(
            f"At most {most:,} connections at a time, fewer than the {settings.requests:,} requests that may be under "
            "way: the system allows no more file descriptors. Raise `ulimit -n`."
        )
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    until = time.monotonic() + patience
    try:
        while True:
            try:
                listener = socket.create_server((settings.host, settings.port), family=family, backlog=2048)
                break
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > until:
                    raise
                time.sleep(0.1)
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
