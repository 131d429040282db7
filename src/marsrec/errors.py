"""What marsrec raises when the caller can put it right."""


class MarsrecError(Exception):
    """An error whose message names the place, what was found, and the remedy."""


class DataError(MarsrecError):
    """Something in a log, a prepared folder or a history is not as it must be."""


class SettingsError(MarsrecError):
    """A setting, an option or a combination of them cannot work."""
