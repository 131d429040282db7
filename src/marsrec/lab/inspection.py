"""Inspection of a trained model on its test histories: attention entropy, decay rates, gate, and example users."""

from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from marsrec.atomic import atomic_file
from marsrec.data.histories import Histories
from marsrec.data.moments import AgeUnit
from marsrec.data.times import PER_SECOND
from marsrec.errors import DataError
from marsrec.lab.attention import Entropy, attention_entropy, over_test_histories
from marsrec.lab.example_users import Example, examples, half_lives, short
from marsrec.nn.mars import diversity_loss
from marsrec.nn.readouts.mars import Mars
from marsrec.recommender import Recommender
from marsrec.settings import Settings, explain_validation

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Which quantiles are kept."""
BINS = 30


class Spread(Settings):
    """How a quantity is spread over the test histories."""

    quantiles: list[float]
    """At `LEVELS`."""
    edges: list[float]
    """Of the bins of its histogram."""
    counts: list[int]

    @classmethod
    def of(cls, values: NDArray[Any], *, log: bool = False) -> Self:
        """Sum values up; with `log` the bins are of equal width on a logarithmic axis."""
        counts, edges = np.histogram(np.log(values) if log else values, bins=BINS)
        edges = np.exp(edges) if log else edges
        return cls(quantiles=short(np.quantile(values, LEVELS)), edges=short(edges), counts=counts.tolist())


class Head(Settings):
    """A decay rate of MARS."""

    base_rate: float
    """Exponent λ_k / τ_k before modulation."""
    base_half_life: float
    rates: Spread
    """Exponents λ_k(u) / τ_k."""
    half_lives: Spread
    gate: Spread
    """Weight of the head among the heads."""
    mean_gate: float


class Decay(Settings):
    """What MARS learned."""

    heads: list[Head]
    divergence: float
    """Mean Jensen-Shannon divergence of two heads' weights in nats, at most ln 2; 0 with one head."""
    time_scale: Literal["log", "linear"]
    clock: Literal["last-event", "request"]
    unit: AgeUnit
    """Of ages and half-lives: events where the model does not see real time."""

    def weight(self, ages: NDArray[Any], rate: float) -> NDArray[Any]:
        """Weight of events of these ages, relative to a new one."""
        decayed: NDArray[Any] = (1 + ages) ** -rate if self.time_scale == "log" else np.exp(-rate * ages)
        return decayed


class Inspection(Settings):
    """What there is to see in a trained model."""

    format: int = 1
    data: str | None
    model: str
    histories: int
    """Number of test histories."""
    resolution: float | None = None
    """Shortest time between two events of a user that are not at the same time, in hours; None if it was not noted."""
    attention: list[Entropy]
    """Of each layer; empty without the transformer encoder."""
    decay: Decay | None
    """None without the MARS readout."""
    examples: list[Example]


def inspect(recommender: Recommender) -> Inspection:
    """Look into a trained model; one with neither transformer encoder nor MARS readout has nothing to show.

    Parameters
    ----------
    recommender : Recommender
        A fitted one that knows its users' histories.
    """
    model, split = recommender.network, recommender.split()
    with torch.no_grad():
        return Inspection(
            data=recommender.metrics.get("data", {}).get("name"),
            model=recommender.metrics.get("model", recommender.name),
            histories=len(split.test),
            resolution=resolution(split.histories),
            attention=attention_entropy(recommender),
            decay=_decay(recommender, model.readout) if isinstance(model.readout, Mars) else None,
            examples=examples(recommender, split) if isinstance(model.readout, Mars) else [],
        )


def resolution(histories: Histories) -> float | None:
    """Shortest time between consecutive events of a user that is not 0, in hours; None if there is none.

    Examples
    --------
    >>> import polars as pl
    >>> from marsrec.data.log import read_log
    >>> log = pl.DataFrame({"user": [1, 1, 1, 2], "item": [7, 8, 9, 7], "time": [0, 0, 7200, 7260]})
    >>> resolution(Histories.from_log(read_log(log)))
    2.0
    """
    gaps = np.diff(histories.times)
    gaps[histories.offsets[1:-1] - 1] = 0  # from one user to the next
    gaps = gaps[gaps > 0]
    return float(gaps.min()) / PER_SECOND[histories.unit] / 3600 if len(gaps) else None


def write(inspected: Inspection, path: Path) -> None:
    """Write an inspection as JSON."""
    with atomic_file(path) as temporary:
        temporary.write_text(inspected.model_dump_json() + "\n")


def read(path: Path) -> Inspection:
    """Read what `write` wrote."""
    try:
        return Inspection.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = explain_validation(error) if isinstance(error, ValidationError) else error
        raise DataError(f"{path}: not an inspection ({reason}). Inspect the model anew.") from None


# --------------------------------------------------------------------- MARS


def read_heads(recommender: Recommender) -> tuple[Tensor, Tensor, float]:
    """Exponents and gate of each test history, (N, K) both, and the mean divergence of two heads' weights."""
    model = recommender.network
    assert isinstance(model.readout, Mars)
    rates, gates, divergence = [], [], 0.0
    with torch.no_grad():
        for batch in over_test_histories(recommender):
            embedded, states = model.encode(batch)
            reading = model.readout.read(states, embedded, batch)
            assert reading.weights is not None
            rates.append(reading.rates[:, 0].cpu())
            gates.append(reading.gate[:, 0].cpu())
            divergence -= float(diversity_loss(reading.weights)) * len(reading.weights)
    heads, count = rates[0].shape[1], sum(map(len, rates))
    pairs = max(1, heads * (heads - 1))  # the loss sums them, in both orders
    return torch.cat(rates), torch.cat(gates), divergence / count / pairs


def _decay(recommender: Recommender, readout: Mars) -> Decay:
    operator, settings = readout.operator, readout.settings
    rates, gate, divergence = read_heads(recommender)
    base = operator.base_rates().cpu()
    lives, base_lives = half_lives(operator, rates), half_lives(operator, base)
    heads = [
        Head(
            base_rate=base[k].item(),
            base_half_life=base_lives[k],
            rates=Spread.of(rates[:, k].double().numpy()),
            half_lives=Spread.of(lives[:, k], log=True),
            gate=Spread.of(gate[:, k].double().numpy()),
            mean_gate=gate[:, k].double().mean().item(),
        )
        for k in range(len(base))
    ]
    return Decay(
        heads=heads,
        divergence=divergence,
        time_scale=settings.time_scale,
        clock=settings.clock,
        unit=operator.age_unit,
    )
