"""Full ranking over the catalog, a few users at a time.

Shapes: N users, V items, C users of a chunk, d width. Scores have V + 1 columns: column 0 is padding, never ranked.
"""

from collections.abc import Callable, Iterator

import numpy as np
import torch
from numba import prange
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from marsrec.compute.compiled import kernel
from marsrec.compute.threads import like_torch
from marsrec.errors import DataError, SettingsError
from marsrec.nn.kernels.numeric import ZERO, Array, array
from marsrec.nn.repeats import Added

Score = Callable[[Tensor], Tensor]
"""From user vectors (C, d) to their scores (C, V + 1)."""

Seen = tuple[Tensor, Tensor]
"""Items per user in compressed rows: offsets (N + 1,) and item codes."""

MAX_SCORES = 16_000_000
ONE_PASS = 128
"""Up to so many best items are kept in order while the scores go by; more are sorted."""

SHARED_ITEMS = 1 << 17
"""From so many items on threads share the scores of one user."""
_PART = 4096

# Scores of more rows leave the cache before they are counted; fewer make a poor matrix product.
_ROWS = 128


@torch.no_grad()
def target_ranks(
    score: Score,
    users: Tensor,
    targets: Tensor,
    *,
    seen: Seen | None = None,
    added: Added | None = None,
    max_scores: int = MAX_SCORES,
) -> Tensor:
    """Rank of each user's target among all items, with ties at the middle of the places that they share.

    The rank is 1 + the items with a greater score + half of the other items with an equal score, as a random order of
    equals would give on average: no model gains from how the items happen to be numbered, and one that scores
    everything alike ranks every target in the middle.

    Parameters
    ----------
    score : callable
        From user vectors (C, d) to scores (C, V + 1).
    users : Tensor (N, d)
        User vectors.
    targets : Tensor (N,)
        Code of each user's held-out item, from 1 to V.
    seen : (Tensor (N + 1,), Tensor), optional
        Offsets and item codes: user i has seen `items[offsets[i]:offsets[i + 1]]`. Seen items are not ranked, except
        the target itself, which always is.
    added : (Tensor (N + 1,), Tensor, Tensor), optional
        Offsets, item codes and values: what is added to the scores of some items of each user.
    max_scores : int
        No more scores than this are held at once, except that one user's always are.

    Returns
    -------
    Tensor (N,)
        float64; ties can make a rank end in .5.

    Examples
    --------
    >>> scores = torch.tensor([[9.0, 0.1, 0.7, 0.7, 0.2]])  # padding, then four items
    >>> users = torch.tensor([[0]])  # here a row of the scores; usually a vector
    >>> target_ranks(lambda users: scores[users[:, 0]], users, torch.tensor([2])).item()
    1.5
    >>> seen = torch.tensor([0, 2]), torch.tensor([1, 3])
    >>> target_ranks(lambda users: scores[users[:, 0]], users, torch.tensor([4]), seen=seen).item()
    2.0
    """
    if targets.shape != users.shape[:1]:
        raise DataError(f"target_ranks: {len(users)} users but targets {tuple(targets.shape)}; each user needs one")
    ranks = torch.empty(len(users), dtype=torch.float64)  # on the CPU: not every device has float64
    for rows, scores in _score_chunks(score, users, seen, added, max_scores):
        _refuse_nan(scores, rows.start)
        target = targets[rows, None].to(scores.device)  # (C, 1)
        _check_codes("target", target, scores.shape[1], rows.start)
        target_scores = scores.gather(1, target)  # (C, 1)
        if seen is not None:
            # Comparisons with NaN are false: what was seen is neither greater nor equal, not even to -inf.
            scores = _mask(scores, seen, rows, torch.nan).scatter_(1, target, target_scores)
        ranks[rows] = _ranks(scores, target_scores)
    return ranks


@torch.no_grad()
def top_k(
    score: Score,
    users: Tensor,
    k: int,
    *,
    seen: Seen | None = None,
    added: Added | None = None,
    candidates: Tensor | None = None,
    max_scores: int = MAX_SCORES,
) -> tuple[Tensor, Tensor]:
    """The k best items of each user: by score descending, equal scores by item code ascending.

    Parameters
    ----------
    score : callable
        From user vectors (C, d) to scores (C, V + 1). Items with score -inf are not available.
    users : Tensor (N, d)
        User vectors.
    k : int
        How many items.
    seen : (Tensor (N + 1,), Tensor), optional
        Offsets and item codes that are not recommended, as in `target_ranks`.
    added : (Tensor (N + 1,), Tensor, Tensor), optional
        What is added to the scores of some items, as in `target_ranks`.
    candidates : Tensor, optional
        Codes of the only items to recommend.
    max_scores : int
        No more scores than this are held at once, except that one user's always are.

    Returns
    -------
    scores : Tensor (N, k)
        Where fewer than k items are available, the rest is -inf.
    items : Tensor (N, k)
        Where fewer than k items are available, the rest is 0.

    Examples
    --------
    >>> scores = torch.tensor([[9.0, 0.5, 0.75, 0.75, 0.25]])
    >>> top_k(lambda users: scores, torch.zeros(1, 2), 3)
    (tensor([[0.7500, 0.7500, 0.5000]]), tensor([[2, 3, 1]]))
    >>> top_k(lambda users: scores, torch.zeros(1, 2), 3, candidates=torch.tensor([4, 1]))
    (tensor([[0.5000, 0.2500,   -inf]]), tensor([[1, 4, 0]]))
    """
    if k < 1:
        raise SettingsError(f"top_k: k={k}; ask for at least one item")
    best_scores, best_items = [], []
    for rows, scores in _score_chunks(score, users, seen, added, max_scores):
        if candidates is not None:
            _check_codes("candidate", candidates, scores.shape[1])
        one_pass = k <= ONE_PASS and scores.is_cpu and scores.dtype == torch.float32
        best = (_best_of_one_pass if one_pass else _best_of_all)(scores, rows, k, seen, candidates)
        best_scores.append(best[0])
        best_items.append(best[1])
    if len(best_scores) == 1:
        return best_scores[0], best_items[0]
    nobody = torch.empty(0, k, device=users.device)
    return torch.cat([nobody, *best_scores]), torch.cat([nobody.long(), *best_items])


def products(items: Tensor, user: Tensor) -> Tensor:
    """Items (V, d) times one user (d,), float32 on the CPU: as fast as the items come out of memory.

    Torch takes twice as long on one core and does not share the work.
    """
    scores = torch.empty(len(items))
    if len(items) < SHARED_ITEMS:
        _products_of(array(items), array(user), scores.numpy())
    else:
        with like_torch():
            _products(array(items), array(user), scores.numpy())
    return scores


def _best_of_all(
    scores: Tensor, rows: slice, k: int, seen: Seen | None, candidates: Tensor | None
) -> tuple[Tensor, Tensor]:
    _refuse_nan(scores, rows.start)
    if candidates is None:
        codes = torch.arange(1, scores.shape[1], device=scores.device)
    else:
        codes = torch.unique(candidates.to(scores.device))  # ascending, as ties want it
    if seen is not None:
        scores = _mask(scores, seen, rows, -torch.inf)
    scores = scores[:, 1:] if candidates is None else scores[:, codes]
    values, columns = _best_columns(scores, min(k, len(codes)))
    missing = (0, k - values.shape[1])
    items = codes[columns].masked_fill(values == -torch.inf, 0)
    return F.pad(values, missing, value=-torch.inf), F.pad(items, missing)


def _best_of_one_pass(
    scores: Tensor, rows: slice, k: int, seen: Seen | None, candidates: Tensor | None
) -> tuple[Tensor, Tensor]:
    catalog = scores.shape[1]
    codes = np.zeros(0, dtype=np.int64)  # none: columns are codes
    if candidates is not None:
        _refuse_nan(scores, rows.start)  # also of items that are no candidates
        codes = np.append(0, np.unique(candidates.numpy()))
        scores = scores[:, torch.from_numpy(codes)]
    if seen is None:
        offsets, items = np.zeros(len(scores) + 1, dtype=np.int64), np.zeros(0, dtype=np.int64)
    else:
        offsets, items = seen[0][rows.start : rows.stop + 1].numpy(), seen[1].numpy()
    values, best = np.full((len(scores), k), -np.inf, dtype=np.float32), np.zeros((len(scores), k), dtype=np.int64)
    # In one thread: it is short beside the products before it, whose own threads still wait for more.
    broken = _best_in_one_pass(array(scores), codes, offsets, items, catalog, values, best)
    if broken:
        _refuse_nan(scores, rows.start)
    return torch.from_numpy(values), torch.from_numpy(best)


def _score_chunks(
    score: Score, users: Tensor, seen: Seen | None, added: Added | None, max_scores: int
) -> Iterator[tuple[slice, Tensor]]:
    """Give the scores of some rows after another, as many rows as fit."""
    if seen is not None and len(seen[0]) != len(users) + 1:
        raise DataError(f"ranking: {len(users)} users want {len(users) + 1} offsets of seen items, got {len(seen[0])}")
    start, size = 0, 1  # the first row shows how many columns there are
    while start < len(users):
        rows = slice(start, min(start + size, len(users)))
        scores = score(users[rows])
        if scores.ndim != 2 or len(scores) != rows.stop - rows.start:
            raise DataError(
                f"ranking: {rows.stop - rows.start} users got scores {tuple(scores.shape)}; give a row each"
            )
        if added is not None:
            places = _own(added[0], rows, *added[1:])
            scores = scores.clone().index_put_(places[:2], places[2].to(scores), accumulate=True)
        yield rows, scores
        copies = 1 + (seen is not None) + (added is not None)
        start, size = rows.stop, max(1, min(_ROWS, max_scores // (copies * scores.shape[1])))


def _refuse_nan(scores: Tensor, first_row: int) -> None:
    # The maximum is NaN if anything is, and takes one pass with no temporary.
    if scores[:, 1:].amax().isnan():
        row, column = (int(index) for index in scores[:, 1:].isnan().nonzero()[0])
        raise DataError(
            f"ranking: the score of user row {first_row + row} for item code {column + 1} is NaN; "
            "the model has diverged, train it with a smaller learning rate"
        )


def _mask(scores: Tensor, seen: Seen, rows: slice, value: float) -> Tensor:
    """Copy the scores, with those of the rows' seen items replaced."""
    row, items = (part.to(scores.device) for part in _own(seen[0], rows, seen[1]))
    scores = scores.clone()  # the caller may keep what `score` returned
    scores[row, items] = value
    return scores


def _own(offsets: Tensor, rows: slice, *columns: Tensor) -> tuple[Tensor, ...]:
    """Rows, counted from the first of them, and what belongs to them of columns in compressed rows."""
    begin, end = int(offsets[rows.start]), int(offsets[rows.stop])
    counts = offsets[rows.start + 1 : rows.stop + 1] - offsets[rows.start : rows.stop]
    row = torch.repeat_interleave(torch.arange(len(counts), device=offsets.device), counts)
    return row, *(column[begin:end] for column in columns)


def _check_codes(what: str, codes: Tensor, columns: int, first_row: int = 0) -> None:
    codes = codes.flatten()
    wrong = (codes < 1) | (codes >= columns)
    if wrong.any():
        row = int(wrong.nonzero()[0])
        raise DataError(
            f"ranking: {what} code {int(codes[row])} in row {first_row + row}; item codes go from 1 to {columns - 1}"
        )


def _ranks(scores: Tensor, target_scores: Tensor) -> Tensor:
    """Rank of each row's target score (C, 1) among its scores (C, V + 1), which contain it."""
    if scores.is_cpu and scores.dtype == torch.float32:
        with like_torch():
            return torch.from_numpy(_ranks_in_one_pass(scores.numpy(), target_scores.squeeze(1).numpy()))
    # greater + (equal - 1) / 2 + 1, where "at least" is greater + equal.
    greater, at_least = (scores[:, 1:] > target_scores).sum(1), (scores[:, 1:] >= target_scores).sum(1)
    return (greater + at_least + 1).cpu().double() / 2


@kernel()
def _ranks_in_one_pass(scores: NDArray[np.float32], targets: NDArray[np.float32]) -> NDArray[np.float64]:
    ranks = np.empty(scores.shape[0])
    for row in prange(scores.shape[0]):
        target = targets[row]
        # Counts as narrow as a float32 score fill the vector registers.
        greater, at_least = np.int32(0), np.int32(0)
        for column in range(1, scores.shape[1]):
            greater += np.int32(1) if scores[row, column] > target else np.int32(0)
            at_least += np.int32(1) if scores[row, column] >= target else np.int32(0)
        ranks[row] = (np.int64(greater) + np.int64(at_least) + 1) / 2
    return ranks


def _best_columns(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Find each row's k greatest scores and their columns, equal scores by column."""
    values, columns = scores.topk(k, dim=1)
    worst = values[:, -1:]
    # topk takes any of the equal scores at its border. Where there are more of them than places, sort the whole row.
    crowded = ((scores >= worst).sum(1) > k) & (worst.squeeze(1) > -torch.inf)
    if crowded.any():
        columns[crowded] = scores[crowded].sort(dim=1, descending=True, stable=True).indices[:, :k]
    columns = columns.sort(dim=1).values
    values, order = scores.gather(1, columns).sort(dim=1, descending=True, stable=True)
    return values, columns.gather(1, order)


@kernel()
def _products(items: Array, user: Array, scores: Array) -> None:
    parts = (len(items) + _PART - 1) // _PART
    for part in prange(parts):
        rows = slice(part * _PART, min(part * _PART + _PART, len(items)))
        _products_of(items[rows], user, scores[rows])


@kernel(parallel=False)
def _products_of(items: Array, user: Array, scores: Array) -> None:
    for row in range(len(items)):
        item, total = items[row], ZERO
        for place in range(len(user)):
            total += item[place] * user[place]
        scores[row] = total


@kernel(parallel=False)
def _best_in_one_pass(
    scores: NDArray[np.float32],
    codes: NDArray[np.int64],
    offsets: NDArray[np.int64],
    seen: NDArray[np.int64],
    catalog: int,
    values: NDArray[np.float32],
    items: NDArray[np.int64],
) -> bool:
    """The best items of each row, equal scores by code, into `values` and `items` (N, k); whether a score is NaN.

    Nearly all scores are below the k-th best so far, which a loop sees of many at a time.
    """
    for row in range(len(scores)):
        own = seen[offsets[row] : offsets[row + 1]]
        if _best_of_row(scores[row], codes, own, catalog, values[row], items[row]):
            return True
    return False


@kernel(parallel=False)
def _best_of_row(
    scores: Array,
    codes: NDArray[np.int64],
    seen: NDArray[np.int64],
    catalog: int,
    best: Array,
    chosen: NDArray[np.int64],
) -> bool:
    k, hidden = len(best), np.zeros(catalog, np.uint8)
    for place in range(len(seen)):
        hidden[seen[place]] = 1
    for start in range(1, len(scores), 256):
        block = scores[start : min(start + 256, len(scores))]
        worst = best[k - 1]
        above = np.int32(0)
        for j in range(len(block)):
            above += np.int32(0) if block[j] <= worst else np.int32(1)  # what is not a number is not below
        if above == 0:
            continue
        for j in range(len(block)):
            score = block[j]
            if score <= best[k - 1]:
                continue
            if score != score:
                return True
            column = start + j
            code = codes[column] if len(codes) > 0 else column
            if hidden[code] == 1:
                continue
            place = k - 1
            while place > 0 and best[place - 1] < score:
                best[place], chosen[place] = best[place - 1], chosen[place - 1]
                place -= 1
            best[place], chosen[place] = score, code
    return False
