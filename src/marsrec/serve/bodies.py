"""Bodies: JSON becomes requests, in a time that does not grow with what is wrong in it."""

import re
from itertools import islice
from typing import Any, TypeVar

from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from pydantic_core import from_json

from marsrec.serve.refusals import RefusalError
from marsrec.serve.schemas import MAX_CANDIDATES, MAX_EVENTS, RequestSchema

MOST_VALUES = 2 * MAX_EVENTS + MAX_CANDIDATES + 1000
"""Values that a request can have: item and time of each event, candidates, and a few more."""
MOST_FAULTS = 50
"""Faults that are looked at."""
MOST_KEYS = 32
"""Keys of an object that are looked at; none that is asked for has as many."""
_TEXT_OR_COMMA = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|,', re.DOTALL)

Schema = TypeVar("Schema", bound=RequestSchema)


def read(schema: type[Schema], body: bytes) -> Schema:
    """What a body says. Raises what says where it is wrong; of many faults, the first ones.

    Examples
    --------
    >>> from marsrec.serve.endpoints.recommend import RecommendRequest
    >>> read(RecommendRequest, b'{"history": [], "k": 3}').k
    3
    """
    if _too_many(body):
        raise RefusalError(
            422,
            "too_much",
            f"The body has more than {MOST_VALUES:,} values.",
            "Send less at once, in several parts.",
        )
    try:
        return schema.model_validate_json(body)
    except ValidationError as error:
        found = error
    if found.error_count() > MOST_FAULTS:
        try:
            schema.model_validate(_shortened(from_json(body)))
        except ValidationError as error:
            found = error
    faults = found.errors(include_url=False, include_context=False, include_input=False)
    raise RequestValidationError(located("body", faults[:MOST_FAULTS]))


def located(where: str, faults: list[Any]) -> list[dict[str, Any]]:
    """Faults with the part of the request in which they are."""
    return [{**fault, "loc": (where, *fault["loc"])} for fault in faults]


def _too_many(body: bytes) -> bool:
    """Whether there are more values than any request has, counted by the commas that are not in texts."""
    if body.count(b",") < MOST_VALUES:
        return False
    # One after the other and not at once, so that other threads have their turn.
    between = (found for found in _TEXT_OR_COMMA.finditer(body) if found.group() == b",")
    return next(islice(between, MOST_VALUES, None), None) is not None


def _shortened(value: Any) -> Any:
    """A value with the first keys of its objects."""
    if isinstance(value, dict):
        return {key: _shortened(value[key]) for key in list(value)[:MOST_KEYS]}
    return [_shortened(one) for one in value] if isinstance(value, list) else value
