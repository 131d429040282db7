"""Proposition 3 in numbers: are the rates and weights of a Hawkes process found again, by whom, from how much data.

The proposition leans on a classical result, that a finite mixture of exponentials has only one set of rates and
weights, and says that the MARS model finds them. Both are put to the test on logs whose law is known: all users share
the weights of the kernels, as the proposition has it.

- *Maximum likelihood*, which the classical part is about: of the waiting times between parents and children, which only
  a simulation tells, and of the times of the events alone, as a log has them.
- *The model*: mars-t, trained to predict the next item, in linear and in log time, with and without the diversity loss.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray

from marsrec.compiled import kernel
from marsrec.data.hawkes import HawkesSettings, HawkesTruth, hawkes
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.lab.inspection import read_heads
from marsrec.nn.kernels.decayed_average import TimeScale
from marsrec.nn.mars import MARS
from marsrec.nn.readouts.mars import Mars
from marsrec.recommender import Recommender
from marsrec.training.module import TrainingSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Known = Literal["parents", "background", "times"]

SHARED = 1e6  # concentration of the users' weights at which all users have the same
ROUNDS = 300  # of accelerated EM, at most
FOREVER = 1e6  # hours: the longest half-life that is told apart; a power law that hardly decays has none


@dataclass(frozen=True)
class Plan:
    """How much is tried."""

    users: tuple[int, ...]
    """Sizes of the logs for maximum likelihood."""
    seeds: int
    """Logs of each size."""
    unaided: int
    """Largest log of which the times alone are given, which takes EM long."""
    trained: tuple[int, ...]
    """Sizes of the logs that models are trained on, once each."""
    epochs: int


QUICK = Plan(users=(50, 200), seeds=1, unaided=200, trained=(100,), epochs=2)
FULL = Plan(users=(100, 300, 1000, 3000), seeds=3, unaided=1000, trained=(300, 1000), epochs=12)


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


def process(users: int, seed: int) -> HawkesSettings:
    """A law of which the proposition's assumptions are true: all users share the kernels and their weights."""
    return HawkesSettings(users=users, concentration=SHARED, seed=seed)


def measure(quick: bool = False) -> dict[str, Any]:
    """Recovery by maximum likelihood and by the model, over numbers of users."""
    plan = QUICK if quick else FULL
    truth = process(1, 0)
    likelihood, learned = [], []
    for users in plan.users:
        for seed in range(plan.seeds):
            log, law = hawkes(process(users, seed))
            for known in get_args(Known):
                if known != "times" or users <= plan.unaided:
                    found = maximum_likelihood(log, law, known)
                    likelihood.append(_row(found, truth, users=users, seed=seed, known=known, events=len(log)))
    for users in plan.trained:
        log, _ = hawkes(process(users, 0))
        for time_scale in get_args(TimeScale):
            for diversity in (0.01, 0.0):
                model = learn(
                    log, time_scale=time_scale, diversity=diversity, heads=len(truth.weights), epochs=plan.epochs
                )
                told = {"users": users, "events": len(log), "time_scale": time_scale, "diversity": diversity}
                start = _row(model.start, truth)
                others = {"divergence": model.divergence, "ndcg": model.ndcg, "epochs": model.epochs, "start": start}
                learned.append(_row(model.found, truth, **told, **others))
    return {
        "half_lives": list(truth.half_lives),
        "weights": list(truth.weights),
        "likelihood": likelihood,
        "learned": learned,
    }


def _row(found: Recovery, truth: HawkesSettings, **told: Any) -> dict[str, Any]:
    rates, weights = found.errors(truth.half_lives, truth.weights)
    return told | asdict(found) | {"rate_error": rates, "weight_error": weights}


# ---------------------------------------------------------------- maximum likelihood


def maximum_likelihood(log: Log, truth: HawkesTruth, known: Known, *, rounds: int = ROUNDS) -> Recovery:
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
    >>> log, truth = hawkes(HawkesSettings(users=400, half_lives=(0.5, 50.0), weights=(0.5, 0.5), concentration=1e6))
    >>> found = maximum_likelihood(log, truth, "parents")
    >>> [float(f"{life:.1g}") for life in found.half_lives], [round(weight, 1) for weight in found.weights]
    ([0.5, 50.0], [0.5, 0.5])
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
    for _ in range(rounds):
        # SQUAREM (Varadhan and Roland, 2008): two steps of EM tell how far to go on in their direction.
        once = better(logs)
        twice = better(once)
        step, bend = once - logs, twice - 2 * once + logs
        size, bent = (float(np.linalg.norm(part[: 2 * count])) for part in (step, bend))
        length = min(max(size / max(bent, 1e-12), 1.0), 100.0)
        logs = better(logs + 2 * length * step + length**2 * bend)
        if np.abs(once - twice)[: 2 * count].max() < 1e-6:
            break
    found = np.exp(logs)
    strengths = found[count : 2 * count]
    return recovery(np.log(2) / found[:count], strengths / strengths.sum())


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


# ------------------------------------------------------------------------- the model


@dataclass(frozen=True)
class Learned:
    """What a trained model has made of the process."""

    start: Recovery
    """Its heads before training."""
    found: Recovery
    """Median half-life and mean gate of each head over the test histories."""
    divergence: float
    """Mean over pairs of heads of the Jensen-Shannon divergence of what they look at, in nats, at most log 2."""
    ndcg: float
    """Test NDCG@10."""
    epochs: int


def learn(log: Log, *, time_scale: TimeScale, diversity: float, heads: int, epochs: int = 12, seed: int = 0) -> Learned:
    """Train mars-t on a log and look at its heads.

    Parameters
    ----------
    log : Log
        From `hawkes`.
    time_scale : {"linear", "log"}
        "linear" is what the proposition is about, "log" the paper's model.
    diversity : float
        Weight of the diversity loss.
    heads : int
        As many as the process has kernels.
    epochs : int
        Passes over the training events.
    """
    options = {
        "length": 50,
        "encoder.dropout": 0.2,
        "readout.heads": heads,
        "readout.time_scale": time_scale,
        "readout.diversity": diversity,
        "readout.clock": "request",
    }
    training = TrainingSettings(
        epochs=epochs, patience=epochs, targets_per_batch=1024, learning_rate=3e-3, seed=seed, tensorboard=False
    )
    recommender = Recommender("mars-t", options=options, training=training)
    recommender.fit(Histories.from_log(log), progress=False)
    readout = recommender.network.readout
    assert isinstance(readout, Mars)
    operator = readout.operator
    with torch.no_grad():
        untrained = MARS(1, heads, time_scale=time_scale, tau0=operator.tau0)
        lives = operator.half_lives(untrained.base_rates().double())
        start = recovery(lives.numpy(), np.full(heads, 1 / heads))
    rates, gates, divergence = read_heads(recommender)
    return Learned(
        start=start,
        found=recovery(operator.half_lives(rates.double().median(0).values).numpy(), gates.double().mean(0).numpy()),
        divergence=divergence,
        ndcg=recommender.metrics["test"]["NDCG@10"],
        epochs=recommender.metrics["epochs"],
    )
