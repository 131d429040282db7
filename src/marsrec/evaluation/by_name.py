"""A function by its name: one of ours, or anybody's as `module:function`."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from marsrec.errors import SettingsError

Function = Callable[..., Any]


def by_name(name: str, known: Mapping[str, Function], kind: str) -> tuple[str, Function]:
    """A function and what it is called in tables.

    Parameters
    ----------
    name : str
        A name among those known, in upper or lower case, or `module:function` as Python would import it.
    known : mapping
        Our own functions by name.
    kind : str
        What the functions are, for messages.
    """
    for spelling, function in known.items():
        if spelling.lower() == name.lower():
            return spelling, function
    module, colon, attribute = name.partition(":")
    if not colon:
        raise SettingsError(f"unknown {kind} {name!r}. Known: {', '.join(known)}; yours is module:function.")
    try:
        function = getattr(import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise SettingsError(f"{kind} {name!r}: {error}. Give module:function as Python would import it.") from error
    if not callable(function):
        raise SettingsError(f"{kind} {name!r}: a {type(function).__name__} and not a function.")
    return attribute, function


def name_of(function: Function, known: Mapping[str, Function]) -> str:
    """What a function is called in tables."""
    for name, other in known.items():
        if other is function:
            return name
    inner = getattr(function, "func", function)  # that of a functools.partial
    return getattr(inner, "__name__", type(inner).__name__)
