"""The rates and weights of a process as somebody found them, and how far they are from the true ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

FOREVER = 1e6  # hours: the longest half-life that counts; a power law that hardly decays has none


@dataclass(frozen=True)
class Recovery:
    """Half-lives in hours and weights that were found, the shortest half-life first."""

    half_lives: list[float]
    weights: list[float]

    def errors(self, half_lives: Sequence[float], weights: Sequence[float]) -> tuple[float, float]:
        """Distance from the true ones, also in this order: mean factor of the half-lives as |log|, l1 of the weights.

        On a line, pairs in order are the closest of all permutations.

        Examples
        --------
        >>> found = Recovery([0.5, 8.0], [0.5, 0.5])
        >>> [round(error, 3) for error in found.errors([0.25, 8.0], [0.6, 0.4])]
        [0.347, 0.2]
        """
        factors = np.abs(np.log(self.half_lives) - np.log(half_lives))
        return float(factors.mean()), float(np.abs(np.subtract(self.weights, weights)).sum())


def recovery(half_lives: Floats, weights: Floats) -> Recovery:
    """Put heads or kernels in order."""
    order = np.argsort(half_lives)
    return Recovery(np.clip(half_lives, 0, FOREVER)[order].tolist(), weights[order].tolist())
