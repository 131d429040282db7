"""Metrics: functions of the ranks of the held-out items, or of the recommended lists and what is known of them.

A metric is a function whose first parameter is called `ranks` or `lists`::

    def hits(ranks, k): ...     # (N,) ranks from 1, and the cut-off if it wants one
    def coverage(lists): ...    # `Lists`, cut at k

It returns a value per target (N,), whose mean is the figure, or one number for all of them together. One of our own is
a function in this file and its line in `METRICS`.
"""

import numpy as np
from numpy.typing import NDArray

from marsrec.evaluation.by_name import Function
from marsrec.evaluation.lists import Lists

Floats = NDArray[np.float64]

BLOCK = 4096
"""Lists whose item vectors are held at a time."""


def hr(ranks: Floats, k: int) -> Floats:
    """Hit rate: whether the target is among the first k.

    With one relevant item it is the recall. A rank counts at k if it is at most k. The same holds for the fractional
    ranks of ties: two items that share the places 10 and 11 are both at 10.5, which is no hit at 10.

    Examples
    --------
    >>> hr(np.array([1.0, 3.0, 10.5]), 10).tolist()
    [1.0, 1.0, 0.0]
    """
    return (ranks <= k).astype(np.float64)


def ndcg(ranks: Floats, k: int) -> Floats:
    """Normalised discounted cumulative gain: a hit at rank r gives 1 / log2(1 + r).

    Examples
    --------
    >>> ndcg(np.array([1.0, 3.0, 10.5]), 10).tolist()
    [1.0, 0.5, 0.0]
    """
    return hr(ranks, k) / np.log2(1 + ranks)


def mrr(ranks: Floats, k: int) -> Floats:
    """Mean reciprocal rank: a hit at rank r gives 1 / r.

    Examples
    --------
    >>> mrr(np.array([1.0, 4.0, 10.5]), 10).tolist()
    [1.0, 0.25, 0.0]
    """
    return hr(ranks, k) / ranks


def coverage(lists: Lists) -> float:
    """Catalog coverage: the share of all items that are in somebody's list (Herlocker et al. 2004, Ge et al. 2010).

    Examples
    --------
    >>> coverage(Lists.example())  # 1, 2 and 1, 3 out of four items
    0.75
    """
    return float(np.count_nonzero(_frequencies(lists)) / lists.n_items)


def gini(lists: Lists) -> float:
    """Gini index of how often each item is recommended (Fleder and Hosanagar 2009; Castells et al. 2015).

    With p_1 ≤ … ≤ p_V the items' shares of all places, it is Σ_j (2j - V - 1) p_j / (V - 1): 0 if all items of the
    catalog are recommended equally often, 1 if it is always the same one.

    Examples
    --------
    >>> round(gini(Lists.example()), 4)  # shares of 0, 1/4, 1/4 and 1/2
    0.5
    """
    often, n = np.sort(_frequencies(lists)), lists.n_items
    weights = 2 * np.arange(1, n + 1) - n - 1
    return float(weights @ often / max((n - 1) * often.sum(), 1))


def popularity(lists: Lists) -> Floats:
    """Average recommendation popularity (ARP): how often a recommended item occurs in training (Yin et al. 2012).

    Examples
    --------
    >>> popularity(Lists.example()).tolist()  # items that occur 8 and 4 times
    [6.0, 6.0]
    """
    return lists.mean(lists.counts[lists.items])


def novelty(lists: Lists) -> Floats:
    """Mean self-information in bits, -log2 of an item's share of the training events (Zhou et al. 2010).

    An item that training does not have is taken as one that it has once.

    Examples
    --------
    >>> novelty(Lists.example()).tolist()  # shares of 1/2 and 1/4
    [1.5, 1.5]
    """
    shares = np.maximum(lists.counts, 1) / lists.counts[1:].sum()
    return lists.mean(-np.log2(shares)[lists.items])


def repeats(lists: Lists) -> Floats:
    """Repeat rate: the share of recommended items that the user had before (Ren et al. 2019).

    Examples
    --------
    >>> repeats(Lists.example()).tolist()
    [0.5, 0.0]
    """
    return lists.mean(lists.repeats)


def diversity(lists: Lists, vectors: NDArray[np.float32] | None = None) -> Floats:
    """Intra-list diversity (ILD): mean of 1 - cosine over all pairs of a list (Ziegler et al. 2005); 0 without a pair.

    Parameters
    ----------
    lists : Lists
        What was recommended.
    vectors : array (V + 1, d), optional
        Vectors of the items by code; by default the model's own, which no other model's figure compares with.

    Examples
    --------
    >>> diversity(Lists.example()).tolist()  # vectors at a right angle, and in the same direction
    [1.0, 0.0]
    """
    vectors = lists.vectors if vectors is None else vectors
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    units = vectors / np.where(lengths > 0, lengths, 1)
    units[0] = 0  # padding adds nothing to a sum
    found = np.zeros(len(lists))
    for start in range(0, len(lists), BLOCK):
        items = lists.items[start : start + BLOCK]
        several = units[items].astype(np.float64)  # (rows, k, d)
        # The cosines of all ordered pairs sum to |Σ u|², those of an item with itself included.
        cosines = (several.sum(axis=1) ** 2).sum(axis=1) - (several**2).sum(axis=(1, 2))
        count = (items > 0).sum(axis=1)
        pairs = count * (count - 1)
        found[start : start + BLOCK] = np.where(pairs > 0, 1 - cosines / np.maximum(pairs, 1), 0.0)
    return found


def _frequencies(lists: Lists) -> NDArray[np.int64]:
    """(V,) how often each item is recommended."""
    return np.bincount(lists.items.ravel(), minlength=lists.n_items + 1)[1:]


METRICS: dict[str, Function] = {
    "HR": hr,
    "NDCG": ndcg,
    "MRR": mrr,
    "coverage": coverage,
    "Gini": gini,
    "popularity": popularity,
    "novelty": novelty,
    "repeats": repeats,
    "diversity": diversity,
}
"""Our metrics by name."""

ACCURACY = ("HR", "NDCG", "MRR")
"""Those that are measured if nothing else is said."""
