"""Calling the command line within the test's own process."""

import pytest
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.errors import MarsrecError

QUICK = ["--epochs", "3", "--targets-per-batch", "128", "--dim", "16", "--length", "8"]
"""Options of a short training."""


def call(*arguments: object) -> str:
    """What a command writes to stdout."""
    return outputs(*arguments)[0]


def outputs(*arguments: object) -> tuple[str, str]:
    """What a command writes to stdout and stderr."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout, result.stderr


def refused(*arguments: object) -> str:
    """The message of the error that a command ends with."""
    with pytest.raises(MarsrecError) as error:
        CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return str(error.value)
