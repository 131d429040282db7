"""The command line. Each command is a few lines around a function that can be called from Python as well.

Heavy imports stand inside the commands, so that `marsrec --help` answers at once.
"""

import sys
import warnings
from importlib import import_module
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.markup import escape

from marsrec.cli import console, options
from marsrec.cli.data import datasets, prepare
from marsrec.cli.demo import demo
from marsrec.cli.doctor import doctor
from marsrec.cli.evaluate import compare, evaluate
from marsrec.cli.explain import explain
from marsrec.cli.export import export
from marsrec.cli.fit import fit
from marsrec.cli.lab import lab
from marsrec.cli.models import models
from marsrec.cli.recommend import recommend
from marsrec.cli.serve import serve
from marsrec.cli.tune import tune
from marsrec.compute.memory import exhausted
from marsrec.errors import MarsrecError, SettingsError
from marsrec.settings import explain_validation

app = typer.Typer(
    name="marsrec",
    help="Recommend the next item from timestamped histories.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _begin(
    context: typer.Context,
    modules: Annotated[
        list[str] | None,
        typer.Option("--import", metavar="MODULE", help="Import a module with parts of your own; may be repeated."),
    ] = None,
) -> None:
    context.with_resource(console.listening())
    console.imported[:] = modules or []
    if modules:
        options.find_own_modules()
    for module in modules or []:
        try:
            import_module(module)
        except ImportError as error:
            raise SettingsError(
                f"--import {module}: {error}. It is looked for in this folder and where packages are."
            ) from error


for command in (
    demo,
    datasets,
    prepare,
    fit,
    tune,
    evaluate,
    compare,
    recommend,
    explain,
    export,
    serve,
    models,
    doctor,
):
    options.add(app, command)
app.add_typer(lab, name="lab")


def main() -> None:
    """Run the command line."""
    run(app)


def run(program: typer.Typer) -> None:
    """Run commands; errors that the caller can put right are one sentence, not a traceback."""
    warnings.showwarning = lambda message, *args, **kwargs: console.note(f"warning: {message}")
    try:
        program()
    except (MarsrecError, ValidationError) as error:
        text = explain_validation(error) if isinstance(error, ValidationError) else str(error)
        console.remarks.print(f"[bold red]error:[/] {escape(text)}", soft_wrap=True)
        sys.exit(1)
    except (OSError, MemoryError, RuntimeError) as error:  # a full disk, a folder that may not be written to, no memory
        if (found := exhausted(error)) is not None:
            console.remarks.print(f"[bold red]error:[/] {escape(found)}", soft_wrap=True)
            sys.exit(1)
        if not isinstance(error, OSError) or error.errno is None or isinstance(error, BrokenPipeError):
            raise
        place = "" if error.filename is None else f"{error.filename}: "
        console.remarks.print(f"[bold red]error:[/] {escape(f'{place}{error.strerror}')}.", soft_wrap=True)
        sys.exit(1)
