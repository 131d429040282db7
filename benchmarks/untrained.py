"""Models with random weights: what an answer costs does not depend on what was learned."""

import numpy as np
import polars as pl
import torch

from marsrec import Recommender
from marsrec.data.histories import Histories, Vocabulary

START = 1_600_000_000


def untrained(name: str, histories: Histories, **options: object) -> Recommender:
    """A recommender that knows the users and items of these histories, or of the items alone if there are no events."""
    recommender = Recommender(name, options=options)
    recommender.settings = recommender.planned_settings(8.0)
    recommender.item_ids, recommender.histories = histories.item_ids, histories
    recommender.item_counts = np.bincount(histories.items, minlength=len(histories.item_ids) + 1)
    recommender.unit, recommender.log_end = histories.unit, int(histories.times.max())
    torch.manual_seed(0)
    recommender.network = recommender.settings.build(len(recommender.item_ids)).eval()
    return recommender


def shop(items: int, users: int = 100, events: int = 30) -> Histories:
    """Random histories among so many items, whose ids are texts."""
    rng = np.random.default_rng(0)
    count = users * events
    ids = [
        Vocabulary(pl.Series([f"{kind}{place}" for place in range(size)]))
        for kind, size in (("u", users), ("i", items))
    ]
    times = START + rng.integers(1, 10**5, (users, events)).cumsum(axis=1)
    codes = rng.integers(1, items + 1, count).astype(np.int32)
    return Histories(codes, times.flatten(), np.arange(0, count + 1, events), *ids)
