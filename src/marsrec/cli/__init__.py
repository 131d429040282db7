"""The command line. Each command is a few lines around a function that can be called from Python as well.

Heavy imports stand inside the commands, so that `marsrec --help` answers at once.
"""

import sys
import warnings

from rich.markup import escape

from marsrec import show
from marsrec.cli import about, data, fit, use  # noqa: F401  importing them registers their commands
from marsrec.cli.app import app
from marsrec.errors import MarsrecError


def main() -> None:
    """Run the command line; errors that the caller can put right are one sentence, not a traceback."""
    warnings.showwarning = lambda message, *args, **kwargs: show.note(f"warning: {message}")
    try:
        app()
    except MarsrecError as error:
        show.remarks.print(f"[bold red]error:[/] {escape(str(error))}", soft_wrap=True)
        sys.exit(1)
