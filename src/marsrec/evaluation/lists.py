"""What was recommended, and what is known of it: the input of metrics that look at lists."""

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.histories import Histories, Vocabulary
from marsrec.data.splits import Targets


@dataclass(frozen=True)
class Lists:
    """The best items for N requests, k each, and what is known of the V items of the catalog.

    Items are integer codes from 1 to V. Where fewer than k items were available, a list ends in zeros.
    """

    items: NDArray[np.int64]
    """(N, k) the best first."""
    targets: NDArray[np.int64]
    """(N,) the held-out item of each request."""
    repeats: NDArray[np.bool_]
    """(N, k) whether the user had the item before."""
    counts: NDArray[np.int64]
    """(V + 1,) how often each item occurs in training; entry 0 means nothing."""
    vectors: NDArray[np.float32]
    """(V + 1, d) the model's item embeddings."""
    item_ids: Vocabulary
    """Raw ids: `item_ids.decode(items[0])` are those of the first list."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, rows: Any) -> Self:
        """The lists of some of the requests."""
        return replace(self, items=self.items[rows], targets=self.targets[rows], repeats=self.repeats[rows])

    def first(self, k: int) -> Self:
        """The lists cut at k."""
        return replace(self, items=self.items[:, :k], repeats=self.repeats[:, :k])

    @property
    def n_items(self) -> int:
        """V, the number of items of the catalog."""
        return len(self.counts) - 1

    def mean(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """(N,) mean of each list from a value per place (N, k); 0 for an empty list."""
        there = self.items > 0
        means: NDArray[np.float64] = np.where(there, values, 0.0).sum(axis=1) / np.maximum(there.sum(axis=1), 1)
        return means

    @classmethod
    def example(cls) -> Self:
        """Two lists of two out of four items, to try a metric on.

        Examples
        --------
        >>> lists = Lists.example()
        >>> lists.items.tolist(), lists.targets.tolist(), lists.counts.tolist()
        ([[1, 2], [1, 3]], [2, 4], [0, 8, 4, 4, 0])
        >>> lists.repeats.tolist(), lists.vectors.tolist()
        ([[True, False], [False, False]], [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
        >>> lists.item_ids.decode(lists.items[0]).to_list()
        ['tea', 'milk']
        """
        return cls(
            items=np.array([[1, 2], [1, 3]]),
            targets=np.array([2, 4]),
            repeats=np.array([[True, False], [False, False]]),
            counts=np.array([0, 8, 4, 4, 0]),
            vectors=np.array([[0, 0], [1, 0], [0, 1], [1, 0], [0, 1]], dtype=np.float32),
            item_ids=Vocabulary(pl.Series(["tea", "milk", "rice", "beer"])),
        )


def had_before(histories: Histories, targets: Targets, items: NDArray[Any]) -> NDArray[np.bool_]:
    """(N, k) whether the users of N targets had these items (N, k) before their target.

    It takes memory for every event once, however many targets a user has.
    """
    width = histories.n_items + 1
    owners = np.repeat(np.arange(histories.n_users), histories.lengths)
    pairs, firsts = np.unique(owners * width + histories.items, return_index=True)
    wanted = targets.users[:, None] * width + items
    place = np.searchsorted(pairs, wanted).clip(max=len(pairs) - 1)
    had: NDArray[np.bool_] = (pairs[place] == wanted) & (firsts[place] < targets.positions[:, None])
    return had
