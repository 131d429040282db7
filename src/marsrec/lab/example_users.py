"""Example users of an inspection: what was seen, how it was weighed, what was recommended and what came next."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marsrec.data.batches import contexts, gather
from marsrec.data.splits import Split, Targets
from marsrec.data.times import PER_SECOND
from marsrec.evaluation.evaluate import evaluate
from marsrec.evaluation.ranking import top_k
from marsrec.recommender import Recommender
from marsrec.recommender.explanation import Explanation, explain, read_batch
from marsrec.settings import Settings

TOP = 3
"""Recommendations that are shown of an example user."""
EVENTS = 100
"""Latest events that are kept of an example user."""
POOL = 1000
"""Histories of about the wanted length among which an example is chosen."""
FOREVER = 1e9
"""Half-lives end here: over 100,000 years in hours. A head that hardly decays would have an infinite one."""


class Event(Settings):
    """An event of an example user."""

    item: str
    time: int
    age: float
    weights: list[float]
    """Of the event in each head."""
    share: float | None
    """In the score of the first recommendation, by all heads."""


class Scored(Settings):
    """An item with its rank and its score, which is the sum of the shares."""

    item: str
    rank: float
    score: float
    last_state: float
    """Share of the encoder's last state."""
    heads: list[float]
    """Share of each head; empty where the scorer is not linear, so that there is nothing to split."""


class Example(Settings):
    """A user of the test: what was seen, how it was weighed, what was recommended and what came next."""

    kind: str
    """How the user was chosen."""
    user: str
    length: int
    """Number of events that the model saw; the latest of them are listed."""
    events: list[Event]
    """Oldest first."""
    half_lives: list[float]
    gate: list[float]
    top: list[Scored]
    following: Scored
    """The item that the user really took next."""


def examples(recommender: Recommender, split: Split) -> list[Example]:
    """The best results on a history of typical length and on a long one, and a typical result.

    Of the histories whose length is nearest to the median (the 90 % quantile), take those whose next item has the best
    rank, or the rank nearest to their median; of these the one with most different times of events, and the first.
    """
    wanted = [
        ("next item of best rank, history of median length", 0.5, True),
        ("next item of best rank, long history (90 % quantile)", 0.9, True),
        ("next item of median rank, history of median length", 0.5, False),
    ]
    length = recommender.settings.length
    rows = contexts(split.histories, split.test, length)
    lengths = rows[:, 1] - rows[:, 0]
    pool = max(10, min(POOL, len(rows) // 10))
    found: dict[int, Example] = {}
    for kind, level, best_rank in wanted:
        near = np.sort(np.argsort(np.abs(lengths - np.quantile(lengths, level)), kind="stable")[:pool])
        targets = Targets(split.test.users[near], split.test.positions[near])
        ranks = evaluate(recommender.network, replace(split, test=targets), length).ranks
        worse = ranks if best_rank else np.abs(ranks - np.median(ranks))
        moments = [len(np.unique(split.histories.times[start:end])) for start, end, _ in rows[near]]
        best = np.lexsort((np.negative(moments), worse))[0]
        found.setdefault(int(near[best]), _example(recommender, split, rows[near[best]], ranks[best], kind))
    return list(found.values())


def _example(recommender: Recommender, split: Split, row: NDArray[np.int64], rank: float, kind: str) -> Example:
    model, histories = recommender.network, split.histories
    batch = gather(histories, row[None]).to(model.items.weight.device)
    seen = read_batch(model, batch)
    parts = seen.parts
    assert parts is not None
    assert parts.scales is not None
    length = len(seen.codes)
    codes = top_k(model.score, model(batch).users, min(TOP, len(recommender.item_ids)))[1][0].tolist()
    codes.append(int(histories.items[row[2]]))
    explained = [explain(seen, model, code, recommender.item_ids, recommender.unit) for code in codes]
    items = recommender.item_ids.decode(np.array(codes))
    places = [*range(1, len(codes)), rank]
    *top, following = map(_scored, items, places, explained)
    ages = np.arange(length, dtype=np.float64)[::-1]  # in events
    if parts.scales.age_unit == "hours":
        ages = (seen.now - seen.times) / (3600 * PER_SECOND[recommender.unit])
    terms = explained[0].terms["share"].to_numpy()
    shares = short(terms.reshape(-1, length).sum(0)) if len(terms) else [None] * length
    events = [
        Event(
            item=str(item),
            time=int(seen.times[i]),
            age=float(ages[i]),
            weights=short(parts.weights[:, i]),
            share=shares[i],
        )
        for i, item in enumerate(recommender.item_ids.decode(seen.codes))
    ]
    user = int(np.searchsorted(histories.offsets, row[0], side="right")) - 1
    return Example(
        kind=kind,
        user=str(histories.user_ids.ids[user]),
        length=length,
        events=events[-EVENTS:],
        half_lives=parts.scales.half_lives.clamp(max=FOREVER).tolist(),
        gate=short(parts.gate),
        top=top,
        following=following,
    )


def _scored(item: Any, rank: float, explained: Explanation) -> Scored:
    heads = explained.by_head()["share"].to_list()
    return Scored(item=str(item), rank=rank, score=explained.score, last_state=explained.last_state, heads=heads)


def short(values: Any) -> list[float]:
    """Numbers to six digits, which keeps files small."""
    return [float(f"{float(value):.6g}") for value in values]
