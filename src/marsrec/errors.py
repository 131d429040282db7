"""What marsrec raises when the caller can put it right, and what it warns of."""

import sys
import warnings


class MarsrecError(Exception):
    """An error whose message names the place, what was found, and the remedy."""


class DataError(MarsrecError):
    """Something in a log, a prepared folder or a history is not as it must be."""


class SettingsError(MarsrecError):
    """A setting, an option or a combination of them cannot work."""


def warn(message: str) -> None:
    """Warn, and point at the line outside this package that led here."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("marsrec."):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
