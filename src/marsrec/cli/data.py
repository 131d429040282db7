"""Commands about data: datasets and prepare."""

from pathlib import Path
from typing import Annotated

import typer

from marsrec.cli import console
from marsrec.cli.options import Data, Filters, Json, Log, TiesOption


def datasets(as_json: Json = False) -> None:
    """List the public data sets that marsrec knows, and which are present."""
    from marsrec.data.catalog import CATALOG
    from marsrec.data.public import locate

    rows = [
        {
            "name": entry.name,
            "users": entry.expected.users,
            "items": entry.expected.items,
            "interactions": entry.expected.interactions,
            "title": entry.title,
            "access": "download" if entry.urls else "own copy",
            "found": str(locate(entry.name) or ""),
            "source": entry.urls[0] if entry.urls else entry.homepage,
            "licence": entry.licence,
            "citation": entry.citation,
        }
        for entry in CATALOG.values()
    ]
    if as_json:
        console.as_json(rows)
        return
    columns = ["name", "users", "items", "interactions", "title", "access", "found"]
    shown = [[*(row[c] for c in columns[:-1]), row["found"] or "not here"] for row in rows]
    console.table("Data sets", columns, shown)
    console.note(
        "`marsrec fit NAME` finds NAME.parquet in the folder that MARSREC_DATA names, or in the cache. Otherwise it "
        "downloads what is accessed by download; of the others it says what copy of your own to put there."
    )
    console.note("`shop` and `hawkes` are always there: synthetic logs in which time decides, the first with titles.")


def prepare(
    log: Data,
    log_settings: Log,
    filters: Filters,
    ties: TiesOption = "file",
    out: Annotated[Path | None, typer.Option(help="Folder to write; without it only the statistics are shown.")] = None,
    titles: Annotated[
        Path | None, typer.Option(help="A file with the columns item, title and optionally category.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Read, check and filter a log, and write histories that open at once."""
    from marsrec.data.histories import Histories
    from marsrec.data.source import open_data
    from marsrec.data.times import utc_date
    from marsrec.data.titles import with_titles

    source = open_data(log, log_settings=log_settings, filters=filters, ties=ties)
    histories, notes = source.histories, list(source.notes)
    if titles is not None:
        histories, note = with_titles(histories, titles)
        notes.append(note)
    for note in notes:
        console.note(f"· {note}")
    statistics = histories.statistics()
    if out is not None:
        if Histories.is_prepared(out):
            console.note(f"{out}: the prepared data there are replaced, with their titles if they had any.")
        histories.save(out)
    if as_json:
        console.as_json({**statistics, "notes": notes, "folder": str(out) if out else None})
        return
    for name in ("first_time", "last_time"):
        statistics[name] = f"{statistics[name]} ({utc_date(int(statistics[name]), source.histories.unit)})"
    console.table(source.name, ["", ""], [[name.replace("_", " "), value] for name, value in statistics.items()])
    if out is not None:
        console.note(f"Written to {out}. Next: {console.command('marsrec', 'fit', out)}")
    else:
        console.note("Nothing was written; --out FOLDER writes a prepared folder.")
