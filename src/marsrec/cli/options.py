"""Options that several commands have."""

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

LOG, MODEL, TRAIN = "Reading the log", "The model", "Training"

Data = Annotated[str, typer.Argument(help="A log file, a prepared folder, or a name that `marsrec datasets` lists.")]
Saved = Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
User = Annotated[str | None, typer.Option("--user", help="Column of the users.", rich_help_panel=LOG)]
Item = Annotated[str | None, typer.Option("--item", help="Column of the items.", rich_help_panel=LOG)]
Time = Annotated[str | None, typer.Option("--time", help="Column of the times.", rich_help_panel=LOG)]
Rating = Annotated[str | None, typer.Option("--rating", help="Column of the ratings.", rich_help_panel=LOG)]
MinRating = Annotated[float | None, typer.Option(help="Leave out lower ratings.", rich_help_panel=LOG)]
Unit = Annotated[
    Literal["auto", "s", "ms", "us", "ns"], typer.Option(help="Unit of numeric times.", rich_help_panel=LOG)
]
Deduplicate = Annotated[bool, typer.Option("--deduplicate", help="Drop exact repeats.", rich_help_panel=LOG)]
DropBadRows = Annotated[
    bool, typer.Option("--drop-bad-rows", help="Drop and count unusable rows instead of stopping.", rich_help_panel=LOG)
]
MinUserEvents = Annotated[int, typer.Option(help="Users with fewer events go.", rich_help_panel=LOG)]
MaxUserEvents = Annotated[int | None, typer.Option(help="Users with this many events or more go.", rich_help_panel=LOG)]
MinItemEvents = Annotated[int, typer.Option(help="Items with fewer events go.", rich_help_panel=LOG)]
MaxItemEvents = Annotated[int | None, typer.Option(help="Items with this many events or more go.", rich_help_panel=LOG)]
TiesOption = Annotated[
    Literal["file", "recbole"],
    typer.Option(help="Order of equal times: as in the file, or as RecBole rounds them.", rich_help_panel=LOG),
]


def open_with(given: dict[str, Any], data: str) -> Any:
    """Open data with the reading options of a command."""
    from marsrec.data.filters import FilterSettings
    from marsrec.data.log import LogSettings
    from marsrec.data.source import open_data

    log = LogSettings(**{name: given[name] for name in LogSettings.model_fields})
    filters = FilterSettings(**{name: given[name] for name in FilterSettings.model_fields})
    return open_data(data, log_settings=log, filters=filters, ties=given["ties"])
