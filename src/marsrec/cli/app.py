"""The commands share one application."""

import typer

app = typer.Typer(
    name="marsrec",
    help="Recommend the next item from timestamped histories.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
