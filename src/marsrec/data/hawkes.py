"""Synthetic logs from a branching multi-rate Hawkes process, with the truth beside them: the embedded default data.

A user's events come from the background at a rate μ_u, or are children of earlier events of the same user. An event that
happened x hours ago has children at the rate ::

    φ_u(x) = n Σ_k w_uk β_k exp(-β_k x)

with the branching ratio n (the expected number of children of an event), K rates β_k that all users share, and weights
w_uk, summing to 1, that differ from user to user. A child's item is one of the few successors of its parent's item; a
background item follows the popularity within the user's taste. What comes next depends on which earlier events are
still alive, and that is a matter of hours and days, not of positions.

Users differ in pace as well: the mean gap between background events is drawn on a logarithmic scale, while the length of
a history does not depend on it. So two events back can be a minute ago or a month ago, and only the clock tells.
"""

from dataclasses import dataclass
from typing import Any, Literal, Self

import numba
import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marsrec.data.log import Log
from marsrec.errors import SettingsError
from marsrec.settings import Settings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

START = 1_577_836_800  # 2020-01-01 UTC
JOINING_HOURS = 365 * 24.0  # users begin at some moment of the first year
WAITS = np.geomspace(1e-4, 1e6, 400)  # hours until the next event, for the oracle's integral


class HawkesSettings(Settings):
    """What a synthetic log is drawn from."""

    users: int = 2000
    """Number of users."""
    items: int = 500
    """Number of items; the rarest may not occur."""
    half_lives: tuple[float, ...] = (0.25, 8.0, 240.0)
    """Half-lives of the K kernels in hours: log(2) / β_k."""
    weights: tuple[float, ...] = (0.45, 0.30, 0.25)
    """Shares of the kernels among all children, averaged over users."""
    concentration: float = 5.0
    """Of the Dirichlet law of the users' weights: the smaller, the more users differ."""
    branching: float = 0.85
    """Expected number of children of an event, n."""
    background_hours: tuple[float, float] = (1.0, 600.0)
    """The slowest and the fastest user differ by this: mean hours between background events, drawn log-uniformly."""
    successors: int = 5
    """Number of items that an item can lead to."""
    successor_ratio: float = 0.5
    """Each successor is less likely than the one before by this factor."""
    tastes: int = 25
    """Number of groups of users, each with background items of its own."""
    zipf: float = 1.0
    """Exponent of the popularity of background items within a taste."""
    min_events: int = 5
    """Every user has at least so many events."""
    mean_events: float = 35.0
    """Mean length of a history; the excess over `min_events` is geometric."""
    seed: int = Field(0, ge=0)
    """Of everything random."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        low, high = self.background_hours
        faults = {
            f"users is {self.users}: give at least 1": self.users < 1,
            f"half_lives is {self.half_lives}: give at least one, all above 0": not self.half_lives
            or min(self.half_lives) <= 0,
            f"weights has {len(self.weights)} values and half_lives {len(self.half_lives)}: give one for each": len(
                self.weights
            )
            != len(self.half_lives),
            f"weights is {self.weights}: give values above 0": any(weight <= 0 for weight in self.weights),
            f"branching is {self.branching}: from 1 on a log grows for ever, give a value in [0, 1)": not 0
            <= self.branching
            < 1,
        }
        for fault, found in faults.items():
            if found:
                raise SettingsError(f"hawkes: {fault}.")
        return self
