"""The addresses that are asked most, answered without the machinery of the framework.

A request that is as it must be is answered here, by the function of the framework's own route. One with another
address than it must have goes on to that route, which documents the address and words the refusal. So both give the
same answers, and nothing is described twice. Bodies are read here alone.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, TypeAdapter, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from marsrec.serve.bodies import located, read
from marsrec.serve.endpoints import recommend, users
from marsrec.serve.endpoints.dependencies import PathId
from marsrec.serve.schemas import ModelQuery, RequestSchema
from marsrec.serve.service import Service

READ_AT_ONCE = 64 * 1024
"""Bytes of a body that is read in the loop. A larger one is work, and is left to a thread."""
_USER = "{user:path}"
_ID: TypeAdapter[str] = TypeAdapter(PathId)


@dataclass(frozen=True)
class Direct:
    """A route that is gone to directly.

    Parameters
    ----------
    method, path : str
        As the framework's route has them. A path has at most one place for a user.
    endpoint : callable
        The function of that route.
    query, body : type of RequestSchema, optional
        What it takes besides the user.
    """

    method: str
    path: str
    endpoint: Callable[..., Awaitable[Response]]
    query: type[RequestSchema] | None = None
    body: type[RequestSchema] | None = None
    before: str = field(init=False)
    after: str = field(init=False)
    has_user: bool = field(init=False)

    def __post_init__(self) -> None:
        before, user, after = self.path.partition(_USER)
        for name, value in (("before", before), ("after", after), ("has_user", bool(user))):
            object.__setattr__(self, name, value)

    def matches(self, method: str, path: str) -> bool:
        """Whether a request is for this route."""
        if method != self.method:
            return False
        if not self.has_user:
            return path == self.path
        return path.startswith(self.before) and path.endswith(self.after)

    async def arguments(self, scope: Scope, body: bytes) -> dict[str, Any] | None:
        """What the function is called with; None where the framework knows better what is wrong."""
        found: dict[str, Any] = {}
        if self.body is not None:
            if not body or not _is_json(scope):
                return None
            short = len(body) <= READ_AT_ONCE
            found["body"] = read(self.body, body) if short else await run_in_threadpool(read, self.body, body)
        try:
            if self.has_user:
                path = scope["path"]
                found["user"] = _ID.validate_python(path[len(self.before) : len(path) - len(self.after)], strict=True)
            if self.query is not None:
                found["query"] = _query(self.query, scope["query_string"])
        except ValueError as error:  # also those of pydantic
            if self.body is None or short:
                return None
            # The framework would read all of the body again.
            faults = error.errors(include_url=False) if isinstance(error, ValidationError) else []
            raise RequestValidationError(located("address", faults)) from None
        return found


DIRECT = (
    Direct("POST", "/v1/recommend", recommend.recommend, ModelQuery, recommend.RecommendRequest),
    Direct("GET", "/v1/users/{user:path}/recommendations", recommend.recommend_to_user, recommend.RecommendationsQuery),
    Direct("POST", "/v1/users/{user:path}/events", users.post_events, body=users.Events),
)
"""The routes that are asked most."""


class DirectRoutes:
    """ASGI middleware that goes to some routes directly, and leaves all other requests to the application.

    Parameters
    ----------
    app : ASGI application
        What takes all other requests.
    service : Service
        What the functions of the routes are given first.
    """

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self.app, self.service = app, service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or leave it to the application."""
        if scope["type"] == "http":
            for route in DIRECT:
                if route.matches(scope["method"], scope["path"]):
                    await self._answer(route, scope, receive, send)
                    return
        await self.app(scope, receive, send)

    async def _answer(self, route: Direct, scope: Scope, receive: Receive, send: Send) -> None:
        message: Message | None = await receive()  # all of the body: the guard has read it

        async def again() -> Message:
            nonlocal message
            if message is None:
                return await receive()
            first, message = message, None
            return first

        assert message is not None
        arguments = await route.arguments(scope, message.get("body", b""))
        if arguments is None:
            await self.app(scope, again, send)
            return
        scope["route"] = route  # what the guard counts it as
        response = await route.endpoint(self.service, **arguments)
        await response(scope, receive, send)


@lru_cache(maxsize=4096)
def _query(schema: type[BaseModel], text: bytes) -> BaseModel:
    """A query of a schema. The same ones come again and again, and nobody changes them."""
    if len(text) > 1024:
        raise ValueError("too long to be kept")
    return schema.model_validate(dict(parse_qsl(text.decode("latin-1"), keep_blank_values=True)))


def _is_json(scope: Scope) -> bool:
    kind = next((value for name, value in scope["headers"] if name == b"content-type"), b"")
    kind = kind.partition(b";")[0].strip().lower()
    return kind.startswith(b"application/") and (kind[12:] == b"json" or kind.endswith(b"+json"))
