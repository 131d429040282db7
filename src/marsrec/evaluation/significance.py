"""Whether one model is better than another: their values of the same test targets, compared user by user."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from marsrec.errors import DataError

Floats = NDArray[np.float64]

LEVEL = 0.05
"""Below it a p is statistically significant."""
BLOCK = 500
"""Draws at a time."""
MANY = 1000
"""From so many different values on users are drawn one by one, which takes longer: a tenth as often."""
NUMBERS = 4_000_000
"""Random numbers that are held at a time then."""


@dataclass(frozen=True)
class Difference:
    """How much the mean of one model exceeds that of another over the same targets."""

    mean: float
    low: float
    """Lower end of the 95 % bootstrap interval."""
    high: float
    p: float
    """Two-sided p-value of a paired randomisation test."""

    def __str__(self) -> str:
        chance = "p < 0.0001" if self.p < 1e-4 else f"p = {self.p:.4f}"
        return f"{100 * self.mean:+.2f} [{100 * self.low:+.2f}, {100 * self.high:+.2f}], {chance}"


def paired(
    first: Floats, second: Floats, *, users: NDArray[Any] | None = None, draws: int = 20_000, seed: int = 0
) -> Difference:
    """Compare the values of two models on the same targets.

    The interval resamples users; the test flips the sign of each user's difference at random, which changes nothing in
    law if the models are alike. Where differences take few values (those of HR, NDCG and MRR depend on ranks up to the
    cut-off), both draw how often each value occurs instead of drawing users: the same law at a fraction of the cost.

    Parameters
    ----------
    first, second : array (N,)
        Values per target, in the same order.
    users : array (N,), optional
        The user of each target, where a user can have several: they are drawn, and flipped, together.
    draws : int
        Resamples, and random flips; a tenth of it if there are more than a thousand different values.
    seed : int
        Of the draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> better = paired((rng.random(4000) < 0.33).astype(float), (rng.random(4000) < 0.25).astype(float))
    >>> better.low > 0, better.p < 0.01
    (True, True)
    """
    if len(first) != len(second):
        raise DataError(f"paired: {len(first)} users against {len(second)}; both models need the same test targets")
    own = np.arange(len(first)) if users is None else np.unique(users, return_inverse=True)[1]
    totals: Floats = np.round(np.bincount(own, weights=first - second), 12)
    targets = np.bincount(own)
    # A user counts by the sum of the differences and the number of targets. Complex numbers are sorted by both.
    kinds, counts = np.unique(totals + 1j * targets, return_counts=True)
    values, sizes = kinds.real.copy(), kinds.imag.copy()  # in one piece each, which is what a fast product wants
    mean = float(values @ counts / len(first))
    rng = np.random.default_rng(seed)
    if len(kinds) <= MANY:
        resampled, flipped = _draw_values(values, sizes, counts, draws, rng)
    else:
        resampled, flipped = _draw_users(totals, targets, max(1, draws // 10), rng)
    low, high = np.quantile(resampled, [0.025, 0.975])
    extreme = int((np.abs(flipped) / len(first) >= abs(mean) - 1e-15).sum())
    return Difference(mean, float(low), float(high), (extreme + 1) / (len(flipped) + 1))


def _draw_values(
    totals: Floats, targets: Floats, counts: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Means of resampled users, and sums of randomly flipped totals, from how many users have each total."""
    n, sizes = counts.sum(), np.abs(totals)
    resampled, flipped = np.empty(draws), np.empty(draws)
    for start in range(0, draws, BLOCK):
        rows = slice(start, min(start + BLOCK, draws))
        size = rows.stop - rows.start
        drawn = rng.multinomial(n, counts / n, size=size)
        resampled[rows] = drawn @ totals / (drawn @ targets)
        flipped[rows] = (2 * rng.binomial(counts, 0.5, size=(size, len(counts))) - counts) @ sizes
    return resampled, flipped


def _draw_users(
    totals: Floats, targets: NDArray[np.int64], draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """The same from the total of each user."""
    n = len(totals)
    resampled, flipped = np.empty(draws), np.empty(draws)
    block = max(1, NUMBERS // n)
    for start in range(0, draws, block):
        rows = slice(start, min(start + block, draws))
        shape = rows.stop - rows.start, n
        drawn = rng.integers(0, n, shape)
        resampled[rows] = totals[drawn].sum(axis=1) / targets[drawn].sum(axis=1)
        flipped[rows] = (2 * rng.integers(0, 2, shape, dtype=np.int8) - 1) @ totals
    return resampled, flipped


def holm(p: Sequence[float]) -> list[float]:
    """Correct the p-values of tests that are made together: the chance of any false alarm stays below the level.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])  # three times the smallest, twice the next
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p, dtype=np.float64)
    order = np.argsort(values)
    corrected = np.empty_like(values)
    corrected[order] = np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)).clip(max=1)
    found: list[float] = corrected.tolist()
    return found
