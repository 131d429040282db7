"""An explanation in one sentence: which past events speak for an item, and what speaks against it.

Percentages are shares of what past events add in favour of the item: of the sum of those shares that are above zero.
They are no shares of the whole score, to which the last state belongs as well. Where it matters the sentence says how
much of the score past events bring.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from marsrec.data.moments import ENDLESS, spell_duration

Clock = Literal["request", "last-event"]
"""Moment from which ages are measured: the moment of the request, or the latest event."""
Reason = tuple[str, float]
"""A past event in words, and its share of the score."""

NAMED = 3
"""How many reasons are named at most."""
WORTH = 0.1
"""From which part of what speaks for the item a reason is named."""
NOTHING = 0.01
"""Up to which part of the last state's share past events count for nothing."""


def sentence(item: str, reasons: Sequence[Reason], last_state: float, others: tuple[float, float] = (0.0, 0.0)) -> str:
    """Say why an item has its score.

    Parameters
    ----------
    item : str
        What people call the item.
    reasons : sequence of (str, float)
        Past events in words, with their shares of the score, in any order.
    last_state : float
        The share of the last state; the score is the sum of all.
    others : (float, float)
        What further past events add up to in favour of the item, and against it; none of them counts for more than the
        first `NAMED` reasons in its direction do.

    Examples
    --------
    >>> print(sentence("Filters", [("Tea 2 days ago", 0.4), ("Kettle 9 minutes ago", 6.0)], last_state=0.1))
    Filters: because of Kettle 9 minutes ago (94 %) and others (6 %).
    >>> print(sentence("Filters", [("Tea 2 days ago", 3.0), ("Milk 1 hour ago", -1.0)], last_state=4.0))
    Filters: because of Tea 2 days ago (100 %); against it: Milk 1 hour ago (-33 %);
    past events bring 33 % of the score, the last state the rest.
    """
    favour = sorted((reason for reason in reasons if reason[1] > 0), key=_share, reverse=True)
    against = sorted((reason for reason in [*reasons, ("the last state", last_state)] if reason[1] < 0), key=_share)
    total, brought = sum(map(_share, favour)) + others[0], sum(map(_share, reasons)) + sum(others)
    if told := total > NOTHING * abs(last_state):
        clauses = [f"because of {_listed(favour, others[0], total)}"]
    elif last_state > 0:
        clauses = [
            f"because of the last state; {'past events hardly speak' if total else 'no past event speaks'} for it"
        ]
    else:
        clauses = [f"{'hardly anything' if total else 'nothing'} speaks for it"]
    if against and -sum(map(_share, against)) - others[1] >= WORTH * max(total, last_state):
        clauses.append(f"against it: {_listed(against, others[1], total if told else None)}")
    if told and last_state >= WORTH * total:
        part = f"{100 * brought / (brought + last_state):.0f} %" if brought > 0 else "nothing"
        clauses.append(f"past events bring {part} of the score, the last state the rest")
    return f"{item}: {'; '.join(clauses)}."


def why(
    item: str, events: Sequence[str], shares: NDArray[np.floating], half_lives: Sequence[str | None], last_state: float
) -> str:
    """Say why an item has its score, from the shares of events and heads.

    To a head that never fades all past events are alike, and they are one reason.

    Parameters
    ----------
    item : str
        What people call the item.
    events : sequence of str
        Past events in words, oldest first: see `past_event`.
    shares : array (K, S)
        Shares of the score by head and event.
    half_lives : sequence of (str or None)
        Of the heads, in words.
    last_state : float
        The share of the last state.

    Examples
    --------
    >>> shares = np.array([[1.0, 1.0], [0.0, 6.0]])
    >>> print(why("Filters", ["Tea 2 days ago", "Kettle just now"], shares, ["endless", "1 hour"], last_state=0.0))
    Filters: because of Kettle just now (75 %) and all 2 past events whatever their age (25 %).
    """
    alike = np.array([life == ENDLESS and len(events) > 1 for life in half_lives])
    each = shares[~alike].sum(0)
    first = {*np.argsort(-each, kind="stable")[:NAMED].tolist(), *np.argsort(each, kind="stable")[:NAMED].tolist()}
    reasons = [(events[place], float(each[place])) for place in sorted(first)]
    left = np.delete(each, list(first))  # of a long history nearly all
    if alike.any():
        reasons.append((past_events(len(events)), float(shares[alike].sum())))
    return sentence(item, reasons, last_state, (float(left[left > 0].sum()), float(left[left < 0].sum())))


def past_event(name: str, age: float, clock: Clock, *, latest: bool) -> str:
    """A past event in words: what it was, and when.

    Parameters
    ----------
    name : str
        What people call its item.
    age : float
        In seconds, by the clock.
    clock : {"request", "last-event"}
        Moment from which ages are measured.
    latest : bool
        Whether it is the latest event.

    Examples
    --------
    >>> past_event("Kettle", 720, "request", latest=True), past_event("Kettle", 0, "last-event", latest=True)
    ('Kettle 12 minutes ago', 'Kettle, the latest event')
    >>> past_event("Tea", 720, "last-event", latest=False)
    'Tea 12 minutes before the latest event'
    """
    if clock == "request":
        return f"{name} {spell_duration(age)} ago" if age >= 1 else f"{name} just now"
    if latest:
        return f"{name}, the latest event"
    return f"{name} {spell_duration(age)} before the latest event" if age >= 1 else f"{name} with the latest event"


def past_events(count: int) -> str:
    """All past events in words, for a head that never fades.

    Examples
    --------
    >>> past_events(26)
    'all 26 past events whatever their age'
    """
    return f"all {count:,} past events whatever their age"


def _share(reason: Reason) -> float:
    return reason[1]


def _listed(reasons: Sequence[Reason], others: float, total: float | None) -> str:
    """The first reasons by name and all others together, in percent of `total` if there is one."""
    whole = sum(map(_share, reasons)) + others
    named = [reason for reason in reasons[:NAMED] if reason[1] / whole >= WORTH] or reasons[:1]
    rest = whole - sum(map(_share, named))
    parts = [*named, ("others", rest)] if abs(rest) >= 0.005 * abs(total or whole) else [*named]
    words = [name if total is None else f"{name} ({100 * share / total:.0f} %)" for name, share in parts]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
