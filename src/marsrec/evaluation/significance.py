"""Whether one model is better than another: their ranks of the same test targets, compared user by user."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from marsrec.errors import DataError

Floats = NDArray[np.float64]

BLOCK = 500  # draws at a time: with several seeds nearly every hit has a value of its own


@dataclass(frozen=True)
class Difference:
    """How much the mean gain of one model exceeds that of another over the same users."""

    mean: float
    low: float
    """Lower end of the 95 % bootstrap interval."""
    high: float
    p: float
    """Two-sided p-value of a paired randomisation test."""

    def __str__(self) -> str:
        chance = "p < 0.0001" if self.p < 1e-4 else f"p = {self.p:.4f}"
        return f"{100 * self.mean:+.2f} [{100 * self.low:+.2f}, {100 * self.high:+.2f}], {chance}"


def gains(ranks: Floats, metric: str) -> Floats:
    """What each rank adds to a metric such as NDCG@10.

    Examples
    --------
    >>> gains(np.array([1.0, 3.0, 11.0]), "NDCG@10").tolist()
    [1.0, 0.5, 0.0]
    """
    name, k = metric.split("@")
    value = {"HR": np.ones_like(ranks), "NDCG": 1 / np.log2(1 + ranks), "MRR": 1 / ranks}[name]
    return np.where(ranks <= int(k), value, 0.0)


def paired(first: Floats, second: Floats, *, draws: int = 20_000, seed: int = 0) -> Difference:
    """Compare the gains of two models on the same users.

    The interval resamples users; the test flips the sign of each user's difference at random, which changes nothing in
    law if the models are alike. Differences take fewer values than there are users (gains depend on ranks up to ten),
    so both draw how often each value occurs instead of drawing users: the same law at a fraction of the cost.

    Parameters
    ----------
    first, second : array (N,)
        Gains per user, in the same order of users.
    draws : int
        Resamples, and random flips.
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
    values, counts = np.unique(np.round(first - second, 12), return_counts=True)
    n = len(first)
    rng = np.random.default_rng(seed)
    sizes = np.abs(values)
    resampled, flipped = np.empty(draws), np.empty(draws)
    for block in range(0, draws, BLOCK):
        size = min(BLOCK, draws - block)
        resampled[block : block + size] = rng.multinomial(n, counts / n, size=size) @ values / n
        flipped[block : block + size] = (2 * rng.binomial(counts, 0.5, size=(size, len(counts))) - counts) @ sizes / n
    low, high = np.quantile(resampled, [0.025, 0.975])
    mean = float(values @ counts / n)
    extreme = int((np.abs(flipped) >= abs(mean) - 1e-15).sum())
    return Difference(mean, float(low), float(high), (extreme + 1) / (draws + 1))
