"""Errors as callers see them: JSON with a code, a message and a remedy, never a traceback."""

import json
import logging
import traceback
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from marsrec.errors import MarsrecError
from marsrec.recommender.inference import EarlyError
from marsrec.serve.batching import OverloadError
from marsrec.serve.models import BusyError
from marsrec.serve.store import FullError, LockedError, LostError, reason
from marsrec.serve.worker import UnknownUserError

log = logging.getLogger(__name__)

_KINDS = ("constrained-int", "constrained-float", "constrained-str", "int", "float", "str")
"""What pydantic calls the kinds that a field may be of, in the place of an error."""
_NO_BODY = ("missing", "model_attributes_type", "model_type")
"""What pydantic calls it if there is no body, or one that is no object: also JSON of another content type."""


class ErrorDetail(BaseModel):
    """What went wrong."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    code: str
    """What programs go by."""
    message: str
    """What was found."""
    remedy: str
    """What to do about it."""


class ErrorBody(BaseModel):
    """Every answer that is not a success."""

    error: ErrorDetail


class RefusalError(Exception):
    """A request that is not answered, with its reason."""

    def __init__(self, status: int, code: str, message: str, remedy: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.remedy = status, code, message, remedy

    def response(self) -> Response:
        """What the caller gets."""
        body = {"error": {"code": self.code, "message": self.message, "remedy": self.remedy}}
        headers = {503: {"Retry-After": "1"}, 401: {"WWW-Authenticate": "Bearer"}}.get(self.status)
        # Escaped: a message may quote what cannot be written in UTF-8.
        return Response(json.dumps(body), self.status, headers, "application/json")


MEANINGS = {
    400: "The body is not JSON, or the address is not UTF-8, too long, or has a key twice.",
    401: "The token is missing or wrong.",
    403: "The request comes from a page of another site.",
    404: "There is no such user, item, model or address.",
    405: "The address does not take this method.",
    408: "The body came too late.",
    409: "Not now: models are being loaded, or the user has as many events as the store keeps.",
    413: "The body is too large.",
    422: "The request is invalid.",
    500: "The server failed; its log says why.",
    503: "The server is full or its store does not answer; `Retry-After` says when to try again.",
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """These answers for the OpenAPI document, and those that every address can give."""
    chosen = sorted({400, 401, 403, 408, 413, 422, 500, 503, *statuses})
    return {status: {"model": ErrorBody, "description": MEANINGS[status]} for status in chosen}


def refusal_of(error: Exception) -> RefusalError:
    """An error as the caller gets it."""
    match error:
        case RefusalError():
            return error
        case RequestValidationError():
            return _invalid(error)
        case HTTPException():
            return _http(error)
        case OverloadError():
            return RefusalError(503, "overload", "The queue of the server is full.", "Try again in a second.")
        case SQLAlchemyError():
            # Without the statement: what was to be stored is nobody's business.
            log.error("the event store failed (%s): %s", type(error).__name__, reason(error))
            return RefusalError(503, "store_away", "The event store does not answer.", "Try again in a second.")
        case LostError():
            log.error("the event store failed: %s", error)
            remedy = "Stop the server, put the file back, and start it."
            return RefusalError(503, "store_away", "The event store cannot keep events.", remedy)
        case LockedError():
            return RefusalError(503, "store_locked", str(error), "Try again in a second.")
        case UnknownUserError():
            return RefusalError(404, "unknown_user", str(error), "Post an event of this user first.")
        case EarlyError():
            return RefusalError(422, "too_early", str(error), "Name a later moment, or none.")
        case FullError():
            return RefusalError(409, "history_full", str(error), "Use another user, or a server with a greater limit.")
        case BusyError():
            return RefusalError(409, "loading", str(error), "Try again when the other reload is done.")
        case MarsrecError():
            return RefusalError(422, "refused", str(error), "Correct what the message names.")
    log.error("a request failed\n%s", places_of(error))
    return RefusalError(500, "internal", "The server failed at this request.", "Report it; the log says why.")


def places_of(error: BaseException) -> str:
    """Where an error came from, without its message, in which ids may stand.

    Examples
    --------
    >>> places_of(KeyError("ann"))
    'KeyError'
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = "" if cause is None else f"{places_of(cause)}\nled to\n"
    return f"{before}{''.join(traceback.format_tb(error.__traceback__))}{type(error).__name__}"


def _invalid(error: RequestValidationError) -> RefusalError:
    problems = error.errors()
    if any(problem["type"] == "json_invalid" for problem in problems):
        return RefusalError(400, "not_json", "The body is not JSON.", "Send JSON with Content-Type: application/json.")
    if any(problem["loc"] == ("body",) and problem["type"] in _NO_BODY for problem in problems):
        message = "The body does not fit this address, or its content type is not JSON."
        remedy = "Send a JSON object as /openapi.json describes it, with Content-Type: application/json."
        return RefusalError(422, "invalid", message, remedy)
    by_field: dict[str, list[str]] = {}
    for problem in problems:  # of a field that may be of several kinds, each kind has its own
        place = ".".join(str(part) for part in problem["loc"] if part not in _KINDS)
        by_field.setdefault(place, []).append(problem["msg"])
    fields = [f"{place}: {', or '.join(dict.fromkeys(reasons))}" for place, reasons in list(by_field.items())[:5]]
    more = f" (and {len(by_field) - 5} more)" if len(by_field) > 5 else ""
    return RefusalError(
        422, "invalid", "; ".join(fields)[:2000] + more, "Correct these fields; /openapi.json describes them."
    )


def _http(error: HTTPException) -> RefusalError:
    remedy = "/openapi.json lists all addresses and methods."
    code = {400: "not_json", 404: "unknown_address", 405: "wrong_method"}.get(error.status_code, "refused")
    return RefusalError(error.status_code, code, str(error.detail), remedy)


def install(app: FastAPI) -> None:
    """Let an application answer its errors this way; those that nobody foresaw are the guard's."""

    async def handle(request: Request, error: Exception) -> Response:
        response = refusal_of(error).response()
        for name, value in (getattr(error, "headers", None) or {}).items():
            response.headers[name] = value
        return response

    known = (RefusalError, RequestValidationError, HTTPException, OverloadError, SQLAlchemyError, MarsrecError)
    for kind in known:
        app.add_exception_handler(kind, handle)
