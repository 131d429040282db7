"""What needs no training: three rankings that take a line each, as a measure of what a model is worth on some data.

A figure says little by itself. Where a network does not beat these, the data have little that it could learn, or it has
not learned it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from marsrec.compute.compiled import kernel
from marsrec.data.splits import Part, Split
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
    histories, targets = split.histories, split.targets(part)
    counts = split.item_counts
    popularity = counts / (counts.max() + 1)  # below 1, which is what one pair of items counts
    followers, offsets, pairs = _followers(split)
    items, starts = np.asarray(histories.items), histories.offsets[targets.users]
    rankings = {"popularity": (False, False), "what followed": (True, False), "own items": (True, True)}
    in_order, found = np.sort(popularity[1:]), {}
    for name, (follow, own) in rankings.items():
        starts_at = starts if own else targets.positions
        ranks = _ranks(items, starts_at, targets.positions, popularity, in_order, followers, offsets * follow, pairs)
        found[name] = figures(measures(ks=KS), ranks)
    return found


@kernel(parallel=False, exact=True)
def _ranks(
    items: NDArray[Any],
    starts: _Ints,
    positions: _Ints,
    popularity: _Floats,
    in_order: _Floats,
    followers: _Ints,
    offsets: _Ints,
    pairs: _Ints,
) -> _Floats:
    """Ranks of the items at these positions, whose own items stand from `starts` on.

    Few items of a row have more than their popularity; the others are counted at once.
    """
    ranks = np.empty(len(positions))
    scores, counted = popularity.copy(), np.zeros(len(popularity), np.bool_)
    above = 2.0 + (pairs.max() if len(pairs) else 0)  # an own item comes before all that followed
    for row in range(len(positions)):
        start, position = starts[row], positions[row]
        latest = items[position - 1]
        known = followers[offsets[latest] : offsets[latest + 1]]
        for place in range(len(known)):
            scores[known[place]] += pairs[offsets[latest] + place]
        for place in range(start, position):
            scores[items[place]] += above * (1 + FADING ** (position - 1 - place))
        score = scores[items[position]]
        greater = len(in_order) - np.searchsorted(in_order, score, "right")
        at_least = len(in_order) - np.searchsorted(in_order, score, "left")
        named = np.append(known, items[start:position].astype(np.int64))
        for item in named:
            if not counted[item]:
                counted[item] = True
                greater += int(scores[item] > score) - int(popularity[item] > score)
                at_least += int(scores[item] >= score) - int(popularity[item] >= score)
        for item in named:
            scores[item], counted[item] = popularity[item], False
        ranks[row] = (greater + at_least + 1) / 2  # equals share the middle of their places
    return ranks


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
