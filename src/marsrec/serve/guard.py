"""What every request must pass before it is read: room, origin, token and size. And what every answer carries."""

import asyncio
import hmac
import re
import time
from collections.abc import Callable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marsrec.serve.metrics import Metrics
from marsrec.serve.refusals import RefusalError, refusal_of
from marsrec.serve.settings import ServeSettings, is_loopback

BODY_SECONDS = 30.0
"""How long a body may take to come in."""
HEADERS = {
    "Content-Security-Policy": "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
_HOST = re.compile(r"(?:\[(?P<six>[^\[\]]+)\]|(?P<name>[^:\[\]]+))(?::\d*)?")
"""A name, or an address of either kind, with or without a port."""


class Guard:
    """ASGI middleware around the whole application."""

    def __init__(
        self, app: ASGIApp, settings: ServeSettings, metrics: Metrics, full: Callable[[str], bool] = lambda path: False
    ) -> None:
        self.app, self.settings, self.metrics, self.full = app, settings, metrics, full
        self.under_way = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 0
        guarded = _guarded(scope["path"])

        async def answer(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        # What is open to anybody takes no body and no place, and so cannot keep others out.
        self.under_way += guarded
        self.metrics.under_way.inc(guarded)
        try:
            if guarded:
                self._check(scope)
                receive = _replay(await self._body(scope, receive), receive)
            else:
                _no_body(scope)
            await self.app(scope, receive, answer)
        except Exception as error:
            if status:  # too late for another answer
                raise
            await refusal_of(error).response()(scope, receive, answer)
        finally:
            self.under_way -= guarded
            self.metrics.under_way.dec(guarded)
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(_method(scope), route, status or 499).inc()  # nobody waited for it
            self.metrics.seconds.labels(_method(scope), route).observe(time.perf_counter() - began)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.under_way > self.settings.requests or self.full(scope["path"]):
            raise RefusalError(503, "overload", "Too many requests are under way.", "Try again in a second.")
        if self.settings.token is not None:
            given = headers.get("authorization", "")
            expected = f"Bearer {self.settings.token.get_secret_value()}"
            if not hmac.compare_digest(given.encode(), expected.encode()):
                raise RefusalError(
                    401, "no_token", "The token is missing or wrong.", "Send Authorization: Bearer TOKEN."
                )
        else:
            # Without a token this machine's users are trusted, but not the pages that their browsers show.
            host = _HOST.fullmatch(headers.get("host", ""))
            own = host is not None and is_loopback(host["six"] or host["name"])
            home = f"http://{headers.get('host')}"
            same_site = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
            if not own or not same_site or headers.get("origin", home) != home:
                raise RefusalError(403, "foreign", "A page of another site sent this request.", "Use http://localhost.")

    async def _body(self, scope: Scope, receive: Receive) -> bytes:
        """All of the body, if it is not too large and comes in time."""
        limit = self.settings.body_bytes
        too_large = RefusalError(
            413, "too_large", f"The body is larger than {limit:,} bytes.", "Send less at once, in several requests."
        )
        length = Headers(scope=scope).get("content-length", "0")
        if length.isdecimal() and int(length[:20]) > limit:
            raise too_large
        body, more = bytearray(), True
        try:
            async with asyncio.timeout(BODY_SECONDS):
                while more:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        break
                    body += message.get("body", b"")
                    more = message.get("more_body", False)
                    if len(body) > limit:
                        raise too_large
        except TimeoutError:
            raise RefusalError(408, "too_slow", "The body did not come in time.", "Send it again.") from None
        return bytes(body)


def _guarded(path: str) -> bool:
    """Whether an address wants the token; the page, its files and the state do not."""
    return path.startswith("/v1/") or path in ("/v1", "/metrics")


def _no_body(scope: Scope) -> None:
    headers = Headers(scope=scope)
    if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
        raise RefusalError(413, "too_large", "This address takes no body.", "Send none.")


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
