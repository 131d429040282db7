"""The command that recommends with a saved model."""

from pathlib import Path
from typing import Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Events, Json, Saved, event_of
from marsrec.errors import SettingsError


def recommend(
    saved: Saved,
    user: Annotated[list[str] | None, typer.Option("--user", help="A user of the log; may be repeated.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Every user of the log.")] = False,
    history: Annotated[Path | None, typer.Option(help="A log file with the histories to recommend for.")] = None,
    event: Events = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many items.")] = 10,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    mask_seen: Annotated[
        bool,
        typer.Option("--mask-seen/--keep-seen", help="Leave out items of the user's past; or recommend them, too."),
    ] = True,
    candidate: Annotated[
        list[str] | None, typer.Option("--candidate", help="Only these items; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write to this .parquet or .csv file.", dir_okay=False)] = None,
    as_json: Json = False,
) -> None:
    """Recommend items for users of the log, or for histories given here."""
    from marsrec.atomic import atomic_file
    from marsrec.recommender import Recommender

    if sum(map(bool, (user, all_users, history, event))) != 1:
        raise SettingsError("say for whom, in one way: --user ID, --all-users, --history FILE or --event ITEM@TIME.")
    if out is not None and out.suffix not in (".parquet", ".csv"):
        raise SettingsError(f"{out}: --out writes .parquet or .csv.")
    recommender = Recommender.load(saved)
    recommender.kind = "polars"  # whatever it was fitted on
    users: Any = user
    histories: Any = None
    if all_users:
        users = recommender.user_ids()
    if history is not None:
        histories = history
    if event:
        histories = [event_of(text) for text in event]
    table = recommender.recommend(users, histories=histories, k=k, at=at, mask_seen=mask_seen, candidates=candidate)
    table = console.with_titles(table, recommender)
    if out is not None:
        with atomic_file(out) as temporary:
            _ = table.write_parquet(temporary) if out.suffix == ".parquet" else table.write_csv(temporary)
        console.note(f"{table.height:,} recommendations written to {out}.")
    elif as_json:
        console.as_json(table.to_dicts())
    else:
        rows = [[_cell(name, value) for name, value in row.items()] for row in table.to_dicts()]
        console.table(f"Recommendations of {saved}", table.columns, rows)
        if table.is_empty():
            console.note(
                "Nothing is left to recommend: every item was seen or is no candidate. --keep-seen shows seen ones."
            )
        elif user and recommender.network.splits:
            moment = [] if at is None else ["--at", at]
            asked = ["--user", user[0], "--item", table["item"][0], *moment]
            console.note(f"Why: {console.command('marsrec', 'explain', saved, *asked)}")


def _cell(name: str, value: Any) -> Any:
    """An entry of a table of recommendations: ids as they are, scores with the same number of digits."""
    if name == "score":
        return f"{value:.4f}"
    return str(value) if name in ("user", "item") else "" if value is None else value
