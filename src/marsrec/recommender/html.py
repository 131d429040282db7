"""What recommenders, explanations and sessions look like in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from xml.etree.ElementTree import Element

import polars as pl

from marsrec.models import title
from marsrec.reprs import HEADS, REST, bar, grid, html, swatch, tag

if TYPE_CHECKING:
    from marsrec.recommender.explanation import Explanation
    from marsrec.recommender.recommender import Recommender
    from marsrec.recommender.session import Session

EVENTS = 8
"""Past events that have a line of their own in the picture of an explanation."""
METRICS = ("HR@10", "NDCG@10", "MRR@10")


def of_recommender(recommender: Recommender) -> str:
    """The model, its log, and what was measured."""
    parts: list[Element] = [tag("div", repr(recommender).strip("<>"))]
    measured = {part: row for part in ("valid", "test") if (row := recommender.metrics.get(part))}
    if measured:
        names = [name for name in METRICS if all(name in row for row in measured.values())]
        rows = [[part, *(f"{100 * row[name]:.2f}" for name in names)] for part, row in measured.items()]
        epochs = f"best epoch {recommender.metrics['best_epoch']} of {recommender.metrics['epochs']}"
        parts.append(grid(["", *names], rows, f"× 100, all items ranked; {epochs}"))
        parts.append(tag("div", f"{title(recommender.settings)}: {recommender.metrics['parameters']:,} parameters"))
    return html(*parts)


def of_explanation(explanation: Explanation) -> str:
    """The sentence, and a bar per past event whose colours are the heads."""
    sentence, terms = tag("div", explanation.sentence()), explanation.terms
    if terms.is_empty():
        return html(sentence, tag("div", f"score {explanation.score:+.4f}"))
    by_event = explanation.by_event()
    order = by_event.sort(pl.col("share").abs(), descending=True, maintain_order=True)["event"].to_list()
    lines: list[tuple[str, str, list[tuple[float, str]]]] = []
    for event in order[:EVENTS]:
        own = terms.filter(event=event)
        first = own.row(0, named=True)
        lines.append((first.get("title") or str(first["item"]), first["age"], _coloured(own)))
    if others := order[EVENTS:]:
        rest = terms.filter(pl.col("event").is_in(others)).group_by("head").agg(pl.col("share").sum())
        lines.append((f"{len(others):,} other{'s' if len(others) > 1 else ''}", "", _coloured(rest)))
    lines.append(("last state", "", [(explanation.last_state, REST)]))
    low = min(0.0, *(sum(value for value, _ in parts if value < 0) for *_, parts in lines))
    high = max(0.0, *(sum(value for value, _ in parts if value > 0) for *_, parts in lines))
    rows: list[list[Any]] = [
        [name, age, bar(parts, (low, high)), f"{sum(value for value, _ in parts):+.4f}"] for name, age, parts in lines
    ]
    rows.append(["score", "", "", f"{explanation.score:+.4f}"])
    heads: list[list[Any]] = []
    for row in explanation.by_head().iter_rows(named=True):
        head = [swatch(_colour(row["head"])), str(row["head"])]
        heads.append([head, row["half_life"] or "", f"{row['gate']:.2f}", f"{row['share']:+.4f}"])
    return html(
        sentence,
        grid(["past event", "age", "", "share"], rows),
        grid(["head", "half-life", "gate", "share"], heads),
    )


def of_session(session: Session) -> str:
    """How many events a session has, and what it keeps of them."""
    name = title(session.recommender.settings)
    return html(tag("div", repr(session).strip("<>")), tag("div", f"{name}; {session.nbytes:,} bytes"))


def _coloured(terms: pl.DataFrame) -> list[tuple[float, str]]:
    """Shares with the colours of their heads."""
    rows = terms.sort("head").select("share", "head").iter_rows()
    return [(share, _colour(head)) for share, head in rows]


def _colour(head: int) -> str:
    return HEADS[(head - 1) % len(HEADS)]
