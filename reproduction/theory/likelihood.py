"""Maximum likelihood of a Hawkes process: the rates and weights of its kernels, found from a log.

This is what the classical part of Proposition 3 is about, that a finite mixture of exponentials has only one set of
rates and weights.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.compute.compiled import kernel
from marsrec.data.hawkes import HawkesTruth
from marsrec.data.log import Log
from reproduction.theory.recovery import Recovery, recovery

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Known = Literal["parents", "background", "times"]

ROUNDS = 300  # of accelerated EM, at most
STILL = 1e-6  # EM has converged when a step moves no log rate or log strength further


@dataclass(frozen=True)
class Likeliest(Recovery):
    """What is likeliest, as far as EM came."""

    rounds: int
    """Of accelerated EM, each of three steps."""
    converged: bool
    """Whether it ended because nothing moved."""


def maximum_likelihood(log: Log, truth: HawkesTruth, known: Known, *, rounds: int = ROUNDS) -> Likeliest:
    """The likeliest rates and weights of the kernels, by accelerated EM from a start that does not know them.

    Children that a history ends too early for are part of the likelihood, so that slow kernels are not underrated.

    Parameters
    ----------
    log, truth
        From `hawkes`. Of the truth only the number of kernels is used, and what is `known`.
    known : {"parents", "background", "times"}
        Beside the times of the events: which event brought about which; or the background rates of the users; or
        nothing, so that a background rate has to be found for each user, from that user's events alone.
    rounds : int
        At most this many; it ends earlier when nothing moves.

    Examples
    --------
    >>> from marsrec.data.hawkes import HawkesSettings, hawkes
    >>> log, truth = hawkes(HawkesSettings(users=400, half_lives=(0.5, 50.0), weights=(0.5, 0.5), concentration=1e6))
    >>> found = maximum_likelihood(log, truth, "parents")
    >>> [float(f"{life:.1g}") for life in found.half_lives], [round(weight, 1) for weight in found.weights]
    ([0.5, 50.0], [0.5, 0.5])
    >>> found.converged, maximum_likelihood(log, truth, "parents", rounds=1).converged
    (True, False)
    """
    users = log.frame["user"].str.slice(1).cast(pl.Int64).to_numpy()
    hours = (log.frame["time"] - log.frame["time"].min()).to_numpy() / 3600
    offsets = np.append(0, np.flatnonzero(np.diff(users, append=-1)) + 1)
    spans = hours[offsets[1:] - 1] - hours[offsets[:-1]]
    child = truth.parents >= 0
    waits = hours[child] - hours[truth.parents[child]]
    until_end = np.repeat(hours[offsets[1:] - 1], np.diff(offsets)) - hours
    count = len(truth.rates)

    def better(logs: Floats) -> Floats:
        """One step of EM on the logs of the rates, of the strengths n·w_k, and of the background rates."""
        rates, strengths, background = np.split(np.exp(logs), [count, 2 * count])
        if known == "parents":
            chances = strengths * rates * np.exp(-waits[:, None] * rates)
            chances /= chances.sum(axis=1, keepdims=True)
            born, waited = chances.sum(axis=0), (chances * waits[:, None]).sum(axis=0)
        else:
            born, waited, spontaneous = _expected(offsets, hours, background, strengths, rates)
            if known == "times":  # the first event is where the watch begins
                background = np.maximum(spontaneous - 1, 1e-3) / np.maximum(spans, 1e-3)
        # Children who are still to come when a history ends: how many, and how long after their parents.
        missing = strengths * np.exp(-until_end[:, None] * rates)
        total = born + missing.sum(axis=0)
        waited = waited + (missing * (until_end[:, None] + 1 / rates)).sum(axis=0)
        logged: Floats = np.log(np.concatenate([total / waited, total / len(hours), background]))
        return logged

    background = truth.background_rates if known == "background" else 0.5 * np.diff(offsets) / np.maximum(spans, 1.0)
    rates = np.geomspace(5.0, 0.005, count)  # half-lives from eight minutes to six days
    logs = np.log(np.concatenate([rates, np.full(count, 0.5 / count), background]))
    used, converged = 0, False
    while used < rounds and not converged:
        # SQUAREM (Varadhan and Roland, 2008): two steps of EM tell how far to go on in their direction.
        once = better(logs)
        twice = better(once)
        step, bend = once - logs, twice - 2 * once + logs
        size, bent = (float(np.linalg.norm(part[: 2 * count])) for part in (step, bend))
        length = min(max(size / max(bent, 1e-12), 1.0), 100.0)
        logs = better(logs + 2 * length * step + length**2 * bend)
        used, converged = used + 1, bool(np.abs(once - twice)[: 2 * count].max() < STILL)
    found = np.exp(logs)
    strengths = found[count : 2 * count]
    likeliest = recovery(np.log(2) / found[:count], strengths / strengths.sum())
    return Likeliest(likeliest.half_lives, likeliest.weights, used, converged)


@kernel(parallel=False, exact=True)
def _expected(
    offsets: Ints, hours: Floats, background: Floats, strengths: Floats, rates: Floats
) -> tuple[Floats, Floats, Floats]:
    """Expected children of each kernel, their total waiting time, and background events of each user, given the times.

    Sums over all earlier events are carried from event to event: how many are alive, and the ages of those.
    """
    count = len(rates)
    born, waited = np.zeros(count), np.zeros(count)
    spontaneous = np.zeros(len(background))
    alive, aged = np.empty(count), np.empty(count)
    for user in range(len(background)):
        alive[:] = 0.0
        aged[:] = 0.0
        for event in range(offsets[user], offsets[user + 1]):
            intensity = background[user]
            for k in range(count):
                if event > offsets[user]:
                    gap = hours[event] - hours[event - 1]
                    decay = np.exp(-rates[k] * gap)
                    aged[k] = decay * (aged[k] + gap * (alive[k] + 1.0))
                    alive[k] = decay * (alive[k] + 1.0)
                intensity += strengths[k] * rates[k] * alive[k]
            spontaneous[user] += background[user] / intensity
            for k in range(count):
                share = strengths[k] * rates[k] / intensity
                born[k] += share * alive[k]
                waited[k] += share * aged[k]
    return born, waited, spontaneous
