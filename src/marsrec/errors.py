"""What marsrec raises when the caller can put it right, and what it warns of."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


class MarsrecError(Exception):
    """An error whose message names the place, what was found, and the remedy."""


class DataError(MarsrecError):
    """A log, a prepared folder or a history is unusable."""


class SettingsError(MarsrecError):
    """A setting, an option or a combination of them cannot work."""


@contextmanager
def needs(extra: str, purpose: str) -> Iterator[None]:
    """Name the extra that brings a missing module, around the imports of what only some installations have.

    Parameters
    ----------
    extra : str
        The extra of marsrec that brings the modules.
    purpose : str
        What needs them, as the beginning of a sentence.

    Examples
    --------
    >>> with needs("plot", "a figure"):
    ...     import no_such_module
    Traceback (most recent call last):
    marsrec.errors.SettingsError: a figure needs no_such_module: pip install 'marsrec[plot]' (in a checkout: '.[plot]').
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "marsrec":
            raise
        remedy = f"pip install 'marsrec[{extra}]' (in a checkout: '.[{extra}]')."
        raise SettingsError(f"{purpose} needs {error.name}: {remedy}") from None


def warn(message: str) -> None:
    """Warn, and point at the line outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("marsrec."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
