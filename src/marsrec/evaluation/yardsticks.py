"""What needs no training: three rankings that take a line each, as a measure of what a model is worth on some data.

A figure says little by itself. Where a network does not beat these, the data have little that it could learn, or it has
not learned it.
"""

import numpy as np
from numpy.typing import NDArray

from marsrec.data.splits import Part, Split
from marsrec.evaluation.evaluate import past_items
from marsrec.evaluation.measures import KS, figures, measures

FADING = 0.9
"""How much less an own item counts for each event since."""

_Floats = NDArray[np.float64]
_Ints = NDArray[np.int64]


def yardsticks(split: Split, part: Part = "test") -> dict[str, dict[str, float]]:
    """HR, NDCG and MRR of three rankings on the targets of a part, by name.

    - "popularity": how often items occur in training.
    - "what followed": what came after the latest item in training, most often first; then popularity.
    - "own items": those that the user had, each the higher the later and the more often; then what followed.

    Examples
    --------
    >>> import polars as pl
    >>> from marsrec import Histories, SplitSettings, read_log
    >>> log = pl.DataFrame({"user": [1, 1, 1, 1, 2, 2, 2, 2], "item": list("abab") * 2, "time": list(range(8))})
    >>> found = yardsticks(SplitSettings().apply(Histories.from_log(read_log(log))))
    >>> {name: row["MRR@10"] for name, row in found.items()}
    {'popularity': 0.666..., 'what followed': 1.0, 'own items': 0.5}
    """
    counts = split.item_counts[1:]
    popularity = np.append(0.0, counts / (counts.max() + 1))  # below 1, which is what one pair of items counts
    histories, targets = split.histories, split.targets(part)
    followers, offsets, pairs = _followers(split)
    latest = histories.items[targets.positions - 1]
    past, had = past_items(histories, targets)
    above = pairs.max(initial=0) + 2.0  # what is added to the rankings that come first

    wanted, sorted_popularity = histories.items[targets.positions], np.sort(popularity[1:])

    def ranks(first: bool, second: bool) -> _Floats:
        """Those of the targets. Few items of a row have more than their popularity; the others are counted at once."""
        found, scores = np.empty(len(targets)), popularity.copy()
        for target, item in enumerate(wanted):
            own = had[past[target] : past[target + 1]] if first else had[:0]
            known = slice(offsets[latest[target]], offsets[latest[target] + 1] if second else 0)
            scores[followers[known]] += pairs[known]
            np.add.at(scores, own, above * FADING ** np.arange(len(own) - 1, -1, -1.0))
            scores[own] += above
            named = np.unique(np.concatenate([own, followers[known]]))
            score, values, usual = scores[item], scores[named], popularity[named]
            greater = len(counts) - np.searchsorted(sorted_popularity, score, "right")
            at_least = len(counts) - np.searchsorted(sorted_popularity, score, "left")
            greater += (values > score).sum() - (usual > score).sum()
            at_least += (values >= score).sum() - (usual >= score).sum()
            found[target] = (greater + at_least + 1) / 2  # equals share the middle of their places
            scores[named] = usual
        return found

    rankings = {"popularity": (False, False), "what followed": (False, True), "own items": (True, True)}
    return {name: figures(measures(ks=KS), ranks(*which)) for name, which in rankings.items()}


def _followers(split: Split) -> tuple[_Ints, _Ints, _Ints]:
    """What follows each item in training, in compressed rows: items, offsets by code, and how often."""
    histories = split.histories
    place = np.arange(len(histories))
    begin = np.repeat(histories.offsets[:-1], histories.lengths)
    second = np.flatnonzero((place > begin) & (place < np.repeat(split.train_ends, histories.lengths)))
    size = histories.n_items + 1
    pairs, times = np.unique(
        histories.items[second - 1].astype(np.int64) * size + histories.items[second], return_counts=True
    )
    return pairs % size, np.searchsorted(pairs // size, np.arange(size + 1)), times
