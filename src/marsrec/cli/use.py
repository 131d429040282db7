"""Commands that use a saved model: recommend and explain."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Json, Saved
from marsrec.errors import SettingsError

if TYPE_CHECKING:
    import polars as pl

    from marsrec.recommender import Recommender


def recommend(
    saved: Saved,
    user: Annotated[list[str] | None, typer.Option("--user", help="A user of the log; may be repeated.")] = None,
    all_users: Annotated[bool, typer.Option("--all-users", help="Every user of the log.")] = False,
    history: Annotated[Path | None, typer.Option(help="A log file with the histories to recommend for.")] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="An event ITEM@TIME of one history; may be repeated.")
    ] = None,
    k: Annotated[int, typer.Option("--k", "-k", help="How many items.")] = 10,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    keep_seen: Annotated[bool, typer.Option("--keep-seen", help="Also items of the user's past.")] = False,
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
        histories = [_event(text) for text in event]
    table = recommender.recommend(users, histories=histories, k=k, at=at, mask_seen=not keep_seen, candidates=candidate)
    table = _with_titles(table, recommender)
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
            moment = "" if at is None else f" --at {at}"
            console.note(f"Why: marsrec explain {saved} --user {user[0]} --item {table['item'][0]}{moment}")


def explain(
    saved: Saved,
    user: Annotated[str | None, typer.Option("--user", help="A user of the log.")] = None,
    event: Annotated[
        list[str] | None, typer.Option("--event", help="An event ITEM@TIME of one history; may be repeated.")
    ] = None,
    item: Annotated[str | None, typer.Option("--item", help="The item; the best recommendation if not given.")] = None,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    top: Annotated[int, typer.Option(help="How many past events to show; --json has all.")] = 10,
    as_json: Json = False,
) -> None:
    """Split the score of an item exactly into past events and time scales."""
    from marsrec.recommender import Recommender

    if (user is None) == (not event):
        raise SettingsError("say whose history, in one way: --user ID or --event ITEM@TIME (repeated).")
    recommender = Recommender.load(saved)
    recommender.kind = "polars"  # whatever it was fitted on
    history: Any = user if user is not None else [_event(text) for text in event or []]
    if item is None:
        whose = {"users" if user is not None else "histories": history}
        with warnings.catch_warnings(action="ignore"):  # `explain` below warns of the same
            best = recommender.recommend(**whose, k=1, at=at)
        if best.is_empty():
            raise SettingsError("every item was seen, so none is recommended. Name one with --item.")
        item = best["item"][0]
    explanation = recommender.explain(history, item, at=at)
    explanation = replace(explanation, terms=_with_titles(explanation.terms, recommender))
    title = recommender.item_ids.title(item)
    if as_json:
        console.as_json(
            {
                "item": item,
                **({} if title is None else {"title": title}),
                "score": explanation.score,
                "last_state": explanation.last_state,
                "terms": explanation.terms.to_dicts(),
            }
        )
        return
    console.explanation(explanation, item if title is None else f"{item}, {title}", top)


def _with_titles(table: "pl.DataFrame", recommender: "Recommender") -> "pl.DataFrame":
    """A table of items with what they are called, where that is known."""
    if recommender.item_ids.titles is None or table.is_empty():
        return table
    return table.join(recommender.item_ids.frame("item"), on="item", how="left", maintain_order="left")


def _event(text: str) -> tuple[str, str]:
    item, at, time = text.rpartition("@")
    if not at:
        raise SettingsError(f"an event is ITEM@TIME, such as tea@2020-01-31T12:00; found {text!r}.")
    return item, time


def _cell(name: str, value: Any) -> Any:
    """An entry of a table of recommendations: ids as they are, scores with the same number of digits."""
    if name == "score":
        return f"{value:.4f}"
    return str(value) if name in ("user", "item") else "" if value is None else value
