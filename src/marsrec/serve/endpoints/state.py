"""How the server is: for balancers, monitors and Prometheus."""

from typing import Literal

from fastapi import APIRouter
from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import Response

from marsrec.serve.endpoints.dependencies import Running
from marsrec.serve.refusals import documented
from marsrec.serve.schemas import AnswerSchema

router = APIRouter(tags=["state"])


class State(AnswerSchema):
    """How the server is."""

    status: Literal["ok"]


@router.get("/healthz", responses={500: documented()[500]})
async def healthz() -> State:
    """Whether the process runs."""
    return State(status="ok")


@router.get("/readyz", responses=documented())
async def readyz(running: Running) -> State:
    """Whether the store answers, so that requests can be."""
    await running.check()
    return State(status="ok")


@router.get("/metrics", responses=documented() | {200: {"content": {"text/plain": {}}}})
async def metrics(running: Running) -> Response:
    """Counts and times for Prometheus."""
    return Response(await running.measurements(), headers={"Content-Type": CONTENT_TYPE_LATEST})
