"""Proposition 3 in numbers: are the rates and weights of a Hawkes process found again, by whom, from how much data.

The proposition leans on a classical result, that a finite mixture of exponentials has only one set of rates and
weights, and says that the MARS model finds them. Both are put to the test on logs whose law is known: all users share
the weights of the kernels, as the proposition has it.

- *Maximum likelihood*, which the classical part is about: of the waiting times between parents and children, which only
  a simulation tells, and of the times of the events alone, as a log has them.
- *The model*: mars-t, trained to predict the next item, in linear and in log time, with and without the diversity loss.
"""

from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch

from marsrec.data.hawkes import HawkesSettings, hawkes
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.lab.inspection import read_heads
from marsrec.nn.kernels.decayed_average import TimeScale
from marsrec.nn.mars import MARS
from marsrec.recommender import Recommender
from marsrec.training.settings import TrainingSettings
from reproduction.theory.likelihood import Known, maximum_likelihood
from reproduction.theory.recovery import Recovery, recovery

SHARED = 1e6  # concentration of the users' weights at which all users have the same
OPTIONS = {"length": 50, "encoder.dropout": 0.2, "readout.dropout": 0.2, "readout.clock": "request"}
"""Of all models that are trained here; the second dropout is on the user vector."""
TRAINING: dict[str, Any] = {"learning_rate": 3e-3, "targets_per_batch": 1024}
"""Of all trainings here."""


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
                of_log = {"users": users, "events": len(log), "time_scale": time_scale, "diversity": diversity}
                start = _row(model.start, truth)
                others = {"divergence": model.divergence, "ndcg": model.ndcg, "epochs": model.epochs, "start": start}
                learned.append(_row(model.found, truth, **of_log, **others))
    return {
        "half_lives": list(truth.half_lives),
        "weights": list(truth.weights),
        "training": OPTIONS | TRAINING,
        "likelihood": likelihood,
        "learned": learned,
    }


def _row(found: Recovery, truth: HawkesSettings, **known: Any) -> dict[str, Any]:
    rates, weights = found.errors(truth.half_lives, truth.weights)
    return known | asdict(found) | {"rate_error": rates, "weight_error": weights}


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
    chosen = {"readout.heads": heads, "readout.time_scale": time_scale, "readout.diversity": diversity}
    training = TrainingSettings(epochs=epochs, patience=epochs, seed=seed, **TRAINING)
    recommender = Recommender("mars-t", options=OPTIONS | chosen, training=training)
    recommender.fit(Histories.from_log(log), progress=False)
    untrained = MARS(1, heads, time_scale=time_scale)
    with torch.no_grad():
        lives = untrained.half_lives(untrained.base_rates().double())
        start = recovery(lives.numpy(), np.full(heads, 1 / heads))
    trained = read_heads(recommender)
    rates = trained.rates.double().median(0).values
    return Learned(
        start=start,
        found=recovery(untrained.half_lives(rates).numpy(), trained.gate.double().mean(0).numpy()),
        divergence=trained.divergence,
        ndcg=recommender.metrics["test"]["NDCG@10"],
        epochs=recommender.metrics["epochs"],
    )
