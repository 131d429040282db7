"""Explanations in words and as text."""

from typing import Any

import numpy as np
import polars as pl
import pytest

from marsrec.recommender.explanation import Explanation
from marsrec.recommender.sentence import Clock, past_events, sentence, why

MINUTE, DAY = 60.0, 86_400.0


def explanation(
    shares: dict[str, tuple[float, float, float]],
    *,
    last_state: float = 0.0,
    clock: Clock = "request",
    titles: dict[str, str] | None = None,
) -> Explanation:
    """Items, oldest first, with their ages and shares by a head that never fades and one that does."""
    rows = [
        {
            "event": len(shares) - place,
            "item": item,
            **({} if titles is None else {"title": titles.get(item)}),
            "time": place,
            "age": f"{age:g} s",
            "age_seconds": age,
            "head": head + 1,
            "half_life": ("endless", "1 hour")[head],
            "half_life_seconds": (None, 3600.0)[head],
            "gate": 0.5,
            "weight": 0.1,
            "share": share,
        }
        for head in range(2)
        for place, (item, (age, *by_head)) in enumerate(shares.items())
        for share in [by_head[head]]
    ]
    terms = pl.DataFrame(rows)
    score = last_state + terms["share"].sum()
    return Explanation("soap", (titles or {}).get("soap"), score, last_state, terms, clock)


def test_reasons_are_past_events_with_their_part_of_what_speaks_for_the_item() -> None:
    found = explanation({"rye": (2 * DAY, 0.0, 0.25), "milk": (90 * MINUTE, 0.0, 1.25), "tea": (0.0, 0.0, 3.5)})
    assert found.sentence() == "soap: because of tea just now (70 %), milk 1.5 hours ago (25 %) and others (5 %)."
    assert str(found).startswith(found.sentence() + "\n")


def test_a_single_reason_stands_alone_however_many_there_are() -> None:
    many = {f"i{place}": (place * DAY, 0.0, 1.0) for place in range(20, 0, -1)}
    assert explanation(many).sentence() == "soap: because of i20 20 days ago (5 %) and others (95 %)."
    assert explanation({"tea": (720.0, 0.0, 2.0)}).sentence() == "soap: because of tea 12 minutes ago (100 %)."


def test_titles_stand_for_ids_where_there_are_any() -> None:
    titles = {"soap": "Green soap", "tea": "Black tea"}
    found = explanation({"jam": (DAY, 0.0, 1.0), "tea": (MINUTE, 0.0, 3.0)}, titles=titles)
    assert found.sentence() == "Green soap: because of Black tea 1 minute ago (75 %) and jam 1 day ago (25 %)."
    assert found.text(top=1).splitlines()[3].split() == ["1", "Black", "tea", "60", "s", "+3.0000"]


def test_the_clock_of_the_latest_event_is_named() -> None:
    shares = {"milk": (DAY, 0.0, 1.0), "jam": (0.0, 0.0, 1.0), "tea": (0.0, 0.0, 2.0)}
    assert explanation(shares, clock="last-event").sentence() == (
        "soap: because of tea, the latest event (50 %), milk 1 day before the latest event (25 %) "
        "and jam with the latest event (25 %)."
    )


def test_to_a_head_that_never_fades_all_events_are_one_reason() -> None:
    found = explanation({"jam": (DAY, 1.5, 0.0), "tea": (0.0, 1.5, 1.0)})
    assert found.sentence() == "soap: because of all 2 past events whatever their age (75 %) and tea just now (25 %)."
    assert explanation({"tea": (0.0, 1.5, 1.0)}).sentence() == "soap: because of tea just now (100 %)."


def test_what_speaks_against_the_item_is_named_unless_it_is_little() -> None:
    against = explanation({"jam": (DAY, 0.0, -1.0), "rye": (2 * DAY, 0.0, -0.06), "tea": (0.0, 0.0, 2.0)})
    assert against.sentence() == (
        "soap: because of tea just now (100 %); against it: jam 1 day ago (-50 %) and others (-3 %)."
    )
    little = explanation({"jam": (DAY, 0.0, -0.1), "tea": (0.0, 0.0, 2.0)})
    assert little.sentence() == "soap: because of tea just now (100 %)."
    state = explanation({"tea": (0.0, 0.0, 2.0)}, last_state=-1.0)
    assert state.sentence() == "soap: because of tea just now (100 %); against it: the last state (-50 %)."


def test_the_sentence_tells_how_much_of_the_score_past_events_bring() -> None:
    shares = {"jam": (DAY, 0.0, 1.0), "tea": (0.0, 0.0, 3.0)}
    reasons = "soap: because of tea just now (75 %) and jam 1 day ago (25 %)"
    assert explanation(shares, last_state=12.0).sentence() == (
        f"{reasons}; past events bring 25 % of the score, the last state the rest."
    )
    assert explanation(shares, last_state=0.39).sentence() == f"{reasons}."


def test_without_an_event_in_favour_no_event_is_called_the_reason() -> None:
    shares = {"tea": (0.0, 0.0, -1.0)}
    assert explanation(shares, last_state=2.0).sentence() == (
        "soap: because of the last state; no past event speaks for it; against it: tea just now."
    )
    assert explanation(shares, last_state=-3.0).sentence() == (
        "soap: nothing speaks for it; against it: the last state and tea just now."
    )
    assert explanation({"tea": (0.0, 0.0, 0.001)}, last_state=2.0).sentence() == (
        "soap: because of the last state; past events hardly speak for it."
    )
    assert explanation({"tea": (0.0, 0.0, 0.0)}).sentence() == "soap: nothing speaks for it."
    assert explanation({"jam": (DAY, 0.0, -3.0), "tea": (0.0, 0.0, 1.0)}, last_state=4.0).sentence() == (
        "soap: because of tea just now (100 %); against it: jam 1 day ago (-300 %); "
        "past events bring nothing of the score, the last state the rest."
    )


def test_only_reasons_that_may_be_named_are_looked_at_one_by_one() -> None:
    draw = np.random.default_rng(0)
    for _ in range(300):
        count = int(draw.integers(1, 30))
        shares = draw.standard_normal((2, count)) * draw.choice([0.01, 1.0], count) + draw.choice([-1, 0, 1])
        lives, last_state = ["endless", "1 hour"][draw.integers(2) :][:2], float(draw.standard_normal())
        events = [f"e{place}" for place in range(count)]
        found = why("soap", events, shares[-len(lives) :], lives, last_state)
        all_reasons = list(
            zip(events, (shares[1] + shares[0] * (len(lives) == 2 and count == 1)).tolist(), strict=True)
        )
        if len(lives) == 2 and count > 1:
            all_reasons.append((past_events(count), float(shares[0].sum())))
        assert found == sentence("soap", all_reasons, last_state)


@pytest.mark.parametrize("last_state", [0.0, 2.0])
def test_percentages_of_what_speaks_for_the_item_sum_to_a_hundred(last_state: float) -> None:
    said = sentence("soap", [("a", 5.0), ("b", 3.0), ("c", 1.5), ("d", 0.5), ("e", 0.0)], last_state)
    assert said.startswith("soap: because of a (50 %), b (30 %), c (15 %) and others (5 %)")


def test_scores_that_do_not_split_say_so() -> None:
    none = Explanation("soap", None, 1.5, 1.5, pl.DataFrame(), "last-event")
    assert none.sentence() == "soap: the score of this model does not split over past events."
    assert str(none) == f"{none.sentence()}\nscore +1.5000"


def cells(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def test_shown_shares_sum_to_the_score() -> None:
    """Events that count most come first, also those against the item, and the others have a line together."""
    shares: dict[str, Any] = {"rye": (3.0, 0.0, 0.25), "jam": (2.0, 0.0, 0.25), "milk": (1.0, 0.0, -2.0)}
    lines = cells(explanation(shares | {"tea": (0.0, 0.5, 0.0)}, last_state=1.0).text(top=2))
    assert lines[2:8] == [
        ["event", "age", "share"],
        ["2", "milk", "1", "s", "-2.0000"],
        ["1", "tea", "0", "s", "+0.5000"],
        ["2", "others", "+0.5000"],
        ["last", "state", "+1.0000"],
        ["score", "+0.0000"],
    ]
    assert lines[9:] == [
        ["head", "half-life", "gate", "share"],
        ["1", "endless", "0.50", "+0.5000"],
        ["2", "1", "hour", "0.50", "-1.5000"],
    ]
