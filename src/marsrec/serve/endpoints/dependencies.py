"""What routes are given, and what they share."""

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Path, Request
from pydantic import BaseModel
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from marsrec.serve.schemas import TEXT
from marsrec.serve.service import Service


async def service(request: Request) -> Service:
    """The service that an application runs. Asynchronous, or the framework would call it in a thread."""
    running: Service = request.app.state.service
    return running


Running = Annotated[Service, Depends(service)]
PathId = Annotated[str, Path(min_length=1, max_length=200, pattern=TEXT)]
"""An id in an address."""


async def written(render: Callable[[], BaseModel]) -> Response:
    """An answer as JSON, made in another thread: others need not wait for a long one."""
    return json(await run_in_threadpool(lambda: render().model_dump_json().encode()))


def json(content: bytes) -> Response:
    """An answer that is JSON already."""
    return Response(content, media_type="application/json")
