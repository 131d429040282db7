"""What every request must pass before it is read: room, origin, token and size. And what every answer carries."""

import asyncio
import hmac
import re
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import unquote_plus, unquote_to_bytes

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marsrec.serve.metrics import Metrics
from marsrec.serve.refusals import RefusalError, refusal_of
from marsrec.serve.settings import ServeSettings, is_loopback

BODY_SECONDS = 30.0
"""How long a body may take to come in."""
STALLED_SECONDS = 5.0
"""How long a body may take to go on."""
ARRIVING_BYTES = 64 * 2**20
"""Bytes of all bodies that are coming in. Beyond them the largest is refused."""
ADDRESS_BYTES = 8192
QUERY_KEYS = 16
"""Keys of a query; no address takes as many."""
HEADERS = [
    (
        b"content-security-policy",
        b"default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
]
"""Of every answer that has no other ones of these names."""
_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?")
"""A name, or an address of either kind, with or without a port."""

Headers = dict[bytes, bytes]


def _full() -> RefusalError:
    return RefusalError(503, "overload", "Too many requests are under way.", "Try again in a second.")


_FULL = _full().response()


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, full: Callable[[str], bool] = lambda path: False
    ) -> None:
        self.app, self.settings, self.metrics, self.full = app, settings, metrics, full
        self.under_way = 0
        """Requests that have come in as a whole, and are being answered."""
        self._arriving: dict[asyncio.Timeout, bytearray] = {}
        metrics.under_way.set_function(lambda: self.under_way)
        token = settings.token
        self._expected = None if token is None else f"Bearer {token.get_secret_value()}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, guarded, answer = time.perf_counter(), _guarded(scope["path"]), _Answer(send)
        if guarded and (self.under_way >= self.settings.requests or self.full(scope["path"])):
            # Nothing of it is looked at: so refusing costs so little that others are answered as quickly as ever.
            await _FULL(scope, receive, answer)
            self.metrics.answered(_method(scope), "other", answer.status, time.perf_counter() - began)
            return
        headers: Headers = dict(reversed(scope["headers"]))  # of several by one name the first counts
        # What is open to anybody takes no body and no place, and so cannot keep others out; nor does what is still
        # coming in, however slowly.
        counted = False
        try:
            (self._check if guarded else _no_body)(headers)
            _check_address(scope)
            if guarded:
                receive = _replay(await self._body(headers, receive), receive)
                if self.under_way >= self.settings.requests:
                    raise _full()
                counted = True
                self.under_way += 1
            await self.app(scope, receive, answer)
        except Exception as error:
            if answer.status:  # too late for another answer
                raise
            await refusal_of(error).response()(scope, receive, answer)
        finally:
            self.under_way -= counted
            route = getattr(scope.get("route"), "path", "other")
            # Nobody waited for what has no status.
            self.metrics.answered(_method(scope), route, answer.status or 499, time.perf_counter() - began)

    def _check(self, headers: Headers) -> None:
        if self._expected is not None:
            if not hmac.compare_digest(headers.get(b"authorization", b""), self._expected):
                raise RefusalError(
                    401, "no_token", "The token is missing or wrong.", "Send Authorization: Bearer TOKEN."
                )
        else:
            # Without a token this machine's users are trusted, but not the pages that their browsers show.
            host = headers.get(b"host", b"")
            home = b"http://" + host
            same_site = headers.get(b"sec-fetch-site", b"none") in (b"none", b"same-origin")
            if not _is_own(host) or not same_site or headers.get(b"origin", home) != home:
                raise RefusalError(403, "foreign", "A page of another site sent this request.", "Use http://localhost.")

    async def _body(self, headers: Headers, receive: Receive) -> bytes:
        """All of the body, if it is not too large and comes in time."""
        limit = self.settings.body_bytes
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > limit:
            raise _too_large(limit)
        body, loop = bytearray(), asyncio.get_running_loop()
        until = loop.time() + BODY_SECONDS
        deadline = asyncio.timeout(min(STALLED_SECONDS, BODY_SECONDS))
        self._arriving[deadline] = body
        try:
            async with deadline:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise RefusalError(400, "cut_off", "The body ended early.", "Send all of it.")
                    body += message.get("body", b"")
                    if len(body) > limit:
                        raise _too_large(limit)
                    if not message.get("more_body", False):
                        return bytes(body)
                    deadline.reschedule(min(until, loop.time() + STALLED_SECONDS))
                    self._make_room()
        except TimeoutError:
            if deadline not in self._arriving:
                raise _full() from None
            raise RefusalError(408, "too_slow", "The body did not come in time.", "Send it again.") from None
        finally:
            self._arriving.pop(deadline, None)

    def _make_room(self) -> None:
        """Refuse the largest bodies if too much is coming in."""
        total = sum(map(len, self._arriving.values()))
        while total > max(ARRIVING_BYTES, self.settings.body_bytes):
            largest = max(self._arriving, key=lambda deadline: len(self._arriving[deadline]))
            total -= len(self._arriving.pop(largest))
            largest.reschedule(0)


class _Answer:
    """What is sent, with the headers that every answer carries."""

    __slots__ = ("send", "status")

    def __init__(self, send: Send) -> None:
        self.send, self.status = send, 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            given = message.get("headers", [])
            names = {name for name, _ in given}
            message["headers"] = [*given, *(header for header in HEADERS if header[0] not in names)]
        await self.send(message)


@lru_cache(maxsize=1024)
def _is_own(host: bytes) -> bool:
    """Whether a `Host` is this machine."""
    found = _HOST.fullmatch(host.decode("latin-1"))
    return found is not None and is_loopback(found["six"] or found["name"])


def _guarded(path: str) -> bool:
    """Whether an address wants the token; the page, its files and the state do not."""
    return path.startswith("/v1/") or path in ("/v1", "/metrics")


def _too_large(limit: int) -> RefusalError:
    remedy = "Send less at once, in several requests."
    return RefusalError(413, "too_large", f"The body is larger than {limit:,} bytes.", remedy)


def _no_body(headers: Headers) -> None:
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        raise RefusalError(413, "too_large", "This address takes no body.", "Send none.")


def _check_address(scope: Scope) -> None:
    """Refuse an address that could be read in two ways, or that takes long to be read."""
    path, query = scope.get("raw_path") or b"", scope.get("query_string", b"")
    found = None
    if len(path) + len(query) > ADDRESS_BYTES:
        found = f"The address is longer than {ADDRESS_BYTES:,} bytes."
    elif query.count(b"&") >= QUERY_KEYS:
        found = f"The query has more than {QUERY_KEYS} keys."
    elif b"%" in path or b"%" in query or not query.isascii():
        try:
            unquote_to_bytes(path).decode(), unquote_to_bytes(query).decode()
        except UnicodeDecodeError:
            found = "The address is not UTF-8."
    if found is None and b"&" in query:
        keys = [unquote_plus(pair.partition(b"=")[0].decode()) for pair in query.split(b"&")]
        if len(set(keys)) < len(keys):
            found = "A key of the query is given twice."
    if found is not None:
        raise RefusalError(400, "bad_address", found, "Send percent-encoded UTF-8, and each key once.")


def _replay(body: bytes, receive: Receive) -> Receive:
    """A body that was read, as the application expects it; then whatever comes after it."""
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


def _method(scope: Scope) -> str:
    """The method as a label; anybody can make up new ones."""
    method: str = scope["method"]
    return method if method in ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PATCH", "DELETE") else "other"
