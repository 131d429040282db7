"""The command that explains a score of a saved model."""

import warnings
from typing import Annotated, Any

import typer

from marsrec.cli import console
from marsrec.cli.options import Events, Json, Saved, event_of
from marsrec.errors import SettingsError


def explain(
    saved: Saved,
    user: Annotated[str | None, typer.Option("--user", help="A user of the log.")] = None,
    event: Events = None,
    item: Annotated[str | None, typer.Option("--item", help="The item; the best recommendation if not given.")] = None,
    at: Annotated[str | None, typer.Option(help="Moment of the request (request clock).")] = None,
    top: Annotated[int, typer.Option(help="How many past events to show; --json has all.")] = 10,
    as_json: Json = False,
) -> None:
    """Say why an item has its score, and split it exactly into past events and time scales."""
    from marsrec.recommender import Recommender

    if (user is None) == (not event):
        raise SettingsError("say whose history, in one way: --user ID or --event ITEM@TIME (repeated).")
    recommender = Recommender.load(saved)
    recommender.kind = "polars"  # whatever it was fitted on
    history: Any = user if user is not None else [event_of(text) for text in event or []]
    if item is None:
        whose = {"users" if user is not None else "histories": history}
        with warnings.catch_warnings(action="ignore"):  # `explain` below warns of the same
            best = recommender.recommend(**whose, k=1, at=at)
        if best.is_empty():
            raise SettingsError("every item was seen, so none is recommended. Name one with --item.")
        item = best["item"][0]
    explanation = recommender.explain(history, item, at=at)
    if as_json:
        console.as_json(
            {
                "item": item,
                **({} if explanation.title is None else {"title": explanation.title}),
                "sentence": explanation.sentence(),
                "score": explanation.score,
                "last_state": explanation.last_state,
                "terms": explanation.terms.to_dicts(),
            }
        )
        return
    console.sentence(explanation.text(top))
