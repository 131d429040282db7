"""Synthetic logs from a branching multi-rate Hawkes process, with the truth beside them.

A user's events come from the background at a rate μ_u, or are children of earlier events of the same user. An event
that happened x hours ago has children at the rate ::

    φ_u(x) = n Σ_k w_uk β_k exp(-β_k x)

with the branching ratio n (the expected number of children of an event), K rates β_k that all users share, and weights
w_uk, summing to 1, that differ from user to user. A child's item is one of the few successors of its parent's item at
that kernel; a background item follows the popularity within the user's taste. Both are drawn, with the same successors
at all kernels, unless an `Assortment` gives them: `marsrec.data.shop` has one of articles with names.

What comes next depends on which earlier events are still alive, a matter of minutes and days and not of positions: two
events back can be minutes or weeks ago. How much that tells depends on the clock. Measured at the latest event, the
latest event is always the likeliest parent, and times only say by how much. Measured at the moment of the request, they
say whether anything is still alive, or whether the user's taste decides.
"""

from dataclasses import dataclass
from typing import Annotated, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from pydantic import Field, model_validator

from marsrec.compute.compiled import kernel
from marsrec.data.log import Log
from marsrec.errors import SettingsError
from marsrec.settings import Settings

Positive = Annotated[float, Field(gt=0)]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

START = 1_577_836_800  # 2020-01-01 UTC
JOINING_HOURS = 365 * 24.0  # users begin at some moment of the first year


class HawkesSettings(Settings):
    """What a synthetic log is drawn from."""

    users: int = Field(2000, ge=1)
    """Number of users."""
    items: int = Field(300, ge=2)
    """Number of items; the rarest may not occur."""
    half_lives: tuple[Positive, ...] = Field((0.25, 8.0, 240.0), min_length=1)
    """Half-lives of the K kernels in hours, log(2) / β_k."""
    weights: tuple[Positive, ...] = (0.6, 0.25, 0.15)
    """Shares of the kernels among the children, averaged over users."""
    concentration: float = Field(5.0, gt=0)
    """Of the Dirichlet law of the users' weights: the smaller, the more users differ."""
    branching: float = Field(0.65, ge=0, lt=1)
    """Expected number n of children of an event; from 1 on there would be no end of them."""
    background_hours: tuple[Positive, Positive] = (24.0, 500.0)
    """Mean hours between background events, of the fastest and of the slowest users; log-uniform between them."""
    successors: int = Field(5, ge=1)
    """Number of items that an item can lead to."""
    successor_ratio: float = Field(0.7, gt=0, le=1)
    """Each successor is less likely than the one before it by this factor."""
    tastes: int = Field(30, ge=1)
    """Number of groups of users, each with background items of its own."""
    zipf: float = Field(1.0, ge=0)
    """Exponent of the popularity of background items within a taste."""
    min_events: int = Field(5, ge=1)
    """Length of the shortest histories."""
    mean_events: float = 35.0
    """Mean length of the histories; what exceeds `min_events` is geometric."""
    seed: int = Field(0, ge=0)
    """Everything random follows from it."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        low, high = self.background_hours
        if len(self.weights) != len(self.half_lives):
            raise SettingsError(
                f"hawkes: {len(self.half_lives)} half_lives have {len(self.weights)} weights. Give one for each."
            )
        if low > high:
            raise SettingsError(f"hawkes: background_hours goes from {low:g} to {high:g}. Give the smaller one first.")
        if max(self.successors + 1, self.tastes) > self.items:
            raise SettingsError(
                f"hawkes: {self.items} items are too few for {self.tastes} tastes and {self.successors} successors. "
                "Give more items, or fewer of the others."
            )
        if self.mean_events < self.min_events:
            raise SettingsError(f"hawkes: mean_events ({self.mean_events:g}) is below min_events ({self.min_events}).")
        return self


@dataclass(frozen=True, eq=False)
class Assortment:
    """What items there are: where they come from, and where they lead."""

    background: Floats
    """(tastes, items) probabilities of background items."""
    successors: Ints
    """(K, items, S) items that an item leads to at each kernel, the likeliest first."""

    def check(self, settings: HawkesSettings) -> None:
        """Raise unless there are as many of everything as the settings say."""
        background = (settings.tastes, settings.items)
        successors = (len(settings.half_lives), settings.items, settings.successors)
        if (self.background.shape, self.successors.shape) != (background, successors):
            raise SettingsError(
                f"hawkes: the assortment has background {self.background.shape} and successors "
                f"{self.successors.shape}; by the settings they are {background} and {successors}. Let them agree."
            )


@dataclass(frozen=True, eq=False)
class HawkesTruth:
    """The law that a log was drawn from, and how each event came about. User 17 is "u17" in the log, item 3 "i3"."""

    rates: Floats
    """(K,) β_k, per hour."""
    weights: Floats
    """(K,) mean of the users' weights in the population."""
    user_weights: Floats
    """(users, K) w_uk."""
    branching: float
    """n, expected number of children of an event."""
    background_rates: Floats
    """(users,) μ_u, per hour."""
    background: Floats
    """(tastes, items) probabilities of background items."""
    tastes: Ints
    """(users,) taste of each user."""
    successors: Ints
    """(K, items, S) items that an item leads to at each kernel, the likeliest first."""
    successor_probabilities: Floats
    """(S,) the same for all items and kernels."""
    parents: Ints
    """(events,) row of the parent in the log; -1 = background."""
    kernels: Ints
    """(events,) kernel that brought the event about; -1 = background."""

    def chances(self, log: Log) -> Floats:
        """(users, items) of each user's last event, by one who knows the law, the events before, and when it happens.

        Proportional to the probabilities of the items. No model can rank them better.
        """
        users, items = (log.frame[column].str.slice(1).cast(pl.Int64).to_numpy() for column in ("user", "item"))
        hours = log.frame["time"].to_numpy() / 3600
        last = np.flatnonzero(np.diff(users, append=-1))
        past = np.delete(np.arange(len(users)), last)
        users, items, ages = users[past], items[past], (hours[last][users] - hours)[past]
        intensity = self.branching * self.user_weights[users] * self.rates * np.exp(-ages[:, None] * self.rates)
        chances: Floats = self.background_rates[:, None] * self.background[self.tastes]
        for successors, children in zip(self.successors, intensity.T, strict=True):
            np.add.at(chances, (users[:, None], successors[items]), children[:, None] * self.successor_probabilities)
        return chances


_DEFAULTS = HawkesSettings()


def hawkes(settings: HawkesSettings = _DEFAULTS, assortment: Assortment | None = None) -> tuple[Log, HawkesTruth]:
    """Draw a log from a multi-rate Hawkes process.

    Parameters
    ----------
    settings : HawkesSettings, optional
    assortment : Assortment, optional
        As many tastes, items, kernels and successors as the settings say. By default it is drawn.

    Returns
    -------
    log : Log
        Rows by user and time; times in seconds.
    truth : HawkesTruth
        What a model may hope to find out.

    Examples
    --------
    >>> log, truth = hawkes(HawkesSettings(users=10, items=30, tastes=2, seed=1))
    >>> log.frame.columns, log.n_users
    (['user', 'item', 'time'], 10)
    >>> truth.rates.round(3)
    array([2.773, 0.087, 0.003])
    """
    if assortment:
        assortment.check(settings)
    generator = np.random.default_rng(settings.seed)
    users, kernels = settings.users, len(settings.half_lives)
    weights = np.array(settings.weights) / sum(settings.weights)
    probabilities = settings.successor_ratio ** np.arange(settings.successors)
    low, high = np.log(settings.background_hours)
    excess = generator.geometric(1 / (1 + settings.mean_events - settings.min_events), users) - 1
    offsets = np.concatenate([[0], np.cumsum(settings.min_events + excess)])
    truth = HawkesTruth(
        rates=np.log(2) / np.array(settings.half_lives),
        weights=weights,
        user_weights=generator.dirichlet(settings.concentration * kernels * weights, users),
        branching=settings.branching,
        background_rates=np.exp(-generator.uniform(low, high, users)),
        background=assortment.background if assortment else _background(settings, generator),
        tastes=generator.integers(settings.tastes, size=users),
        successors=assortment.successors if assortment else _successors(settings, generator),
        successor_probabilities=probabilities / probabilities.sum(),
        parents=np.full(offsets[-1], -1),
        kernels=np.full(offsets[-1], -1),
    )
    codes, hours = np.empty(offsets[-1], np.int64), np.empty(offsets[-1])
    _unfold(
        generator,
        offsets,
        truth.background_rates,
        truth.branching * truth.user_weights,
        truth.rates,
        truth.background.cumsum(axis=1)[truth.tastes],
        truth.successors,
        truth.successor_probabilities.cumsum(),
        (hours, codes, truth.parents, truth.kernels),
    )
    owners = np.repeat(np.arange(users), np.diff(offsets))
    hours += generator.uniform(0, JOINING_HOURS, users)[owners]
    frame = pl.DataFrame({"user": owners, "item": codes, "time": START + (3600 * hours).astype(np.int64)})
    named = frame.with_columns(pl.format("u{}", "user").alias("user"), pl.format("i{}", "item").alias("item"))
    return Log(named, unit="s", source="hawkes"), truth


def _background(settings: HawkesSettings, generator: np.random.Generator) -> Floats:
    """Deal the items out to the tastes, and give those of each taste a Zipf popularity."""
    law = np.zeros((settings.tastes, settings.items))
    dealt = generator.permutation(settings.items)
    rank = np.arange(settings.items) // settings.tastes + 1.0
    law[np.arange(settings.items) % settings.tastes, dealt] = rank**-settings.zipf
    law /= law.sum(axis=1, keepdims=True)
    return law


def _successors(settings: HawkesSettings, generator: np.random.Generator) -> Ints:
    """Choose distinct successors for each item, never the item itself, the same for all kernels."""
    keys = generator.random((settings.items, settings.items))
    np.fill_diagonal(keys, 2.0)
    return np.tile(np.argsort(keys, axis=1)[:, : settings.successors], (len(settings.half_lives), 1, 1))


@kernel(parallel=False, exact=True)
def _unfold(
    generator: np.random.Generator,
    offsets: Ints,
    background_rates: Floats,
    strengths: Floats,
    rates: Floats,
    background: Floats,
    successors: Ints,
    probabilities: Floats,
    out: tuple[Floats, Ints, Ints, Ints],
) -> None:
    """Draw each user's events one after the other, by thinning: between events the intensity can only fall.

    `strengths` are n·w_uk; `background` (a row per user) and `probabilities` are cumulative.
    """
    hours, items, parents, kernels = out
    intensity = np.empty(len(rates))  # of the children by each kernel
    for user in range(len(offsets) - 1):
        first, event, now = offsets[user], offsets[user], 0.0
        intensity[:] = 0.0
        while event < offsets[user + 1]:
            bound = background_rates[user] + intensity.sum()
            wait = generator.exponential(1 / bound)
            now += wait
            intensity *= np.exp(-rates * wait)
            chance = generator.random() * bound - background_rates[user]
            if chance >= intensity.sum():
                continue
            if chance < 0:
                items[event] = np.searchsorted(background[user], generator.random() * background[user, -1])
            else:
                kernel = 0
                while kernel < len(rates) - 1 and chance >= intensity[kernel]:
                    chance -= intensity[kernel]
                    kernel += 1
                # The rest of the chance is uniform over the kernel's intensity: walk back to the parent it falls on.
                parent, rate = event, rates[kernel]
                while chance >= 0 and parent > first:
                    parent -= 1
                    chance -= strengths[user, kernel] * rate * np.exp(-rate * (now - hours[parent]))
                which = np.searchsorted(probabilities, generator.random() * probabilities[-1])
                items[event], parents[event], kernels[event] = successors[kernel, items[parent], which], parent, kernel
            hours[event] = now
            intensity += strengths[user] * rates
            event += 1
