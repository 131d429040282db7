"""Inspection of a trained model on its test histories: attention entropy, decay rates, gate, and example users."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from marsrec.atomic import atomic_file
from marsrec.data.histories import Histories
from marsrec.data.moments import AgeUnit
from marsrec.data.times import PER_SECOND
from marsrec.errors import DataError
from marsrec.evaluation.measures import figures, measures
from marsrec.evaluation.ranking import target_ranks
from marsrec.lab.attention import Entropy, attention_entropy, over_test_histories
from marsrec.lab.example_users import FOREVER, Example, examples, short
from marsrec.nn.mars import SIGMA, diversity_loss
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.base import Readout
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
    """A time scale of the readout."""

    base_rate: float
    """Exponent before it is fitted to a user; λ_k / τ_k of MARS."""
    base_half_life: float
    rates: Spread
    """Exponents of the users; λ_k(u) / τ_k of MARS."""
    half_lives: Spread
    gate: Spread
    """Weight of the head among the heads."""
    mean_gate: float

    def factors(self, rates: Sequence[float]) -> NDArray[np.float64]:
        """What users' exponents are of the base; 1 where nothing fades."""
        return np.divide(rates, self.base_rate) if self.base_rate else np.ones(len(rates))


class Removed(Settings):
    """What the user vectors, and so the test figures, lose without what past events add to them."""

    complete: dict[str, float]
    """Test figures by name."""
    rest: dict[str, float]
    """Those of the rest of the user vector alone; of the last state, for MARS."""
    cosine: Spread
    """Between what past events add and the rest, over the test histories."""


class Decay(Settings):
    """What a readout with time scales, such as MARS, learned."""

    heads: list[Head]
    divergence: float
    """Mean Jensen-Shannon divergence of two heads' weights in nats, at most ln 2; 0 with one head."""
    time_scale: Literal["log", "linear"]
    clock: Literal["last-event", "request"]
    unit: AgeUnit
    """Of ages and half-lives: events where the model does not see real time."""
    removed: Removed | None = None
    """None in inspections from before it was looked at."""

    @property
    def modulated(self) -> bool:
        """Whether the exponents of users differ from the base."""
        return bool(self._farthest > 1e-4)

    @property
    def bounded(self) -> bool:
        """Whether users' exponents stay where the modulation of MARS keeps them; another readout may go further."""
        return bool(self._farthest < 1.001 * SIGMA)

    @property
    def _farthest(self) -> float:
        factors = [head.factors(head.rates.quantiles) for head in self.heads]
        return float(np.abs(np.log(factors)).max())

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
    """None where the readout has no time scales."""
    examples: list[Example]


def inspect(recommender: Recommender) -> Inspection:
    """Look into a trained model; one with neither transformer encoder nor time scales has nothing to show.

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
            decay=_decay(recommender),
            examples=examples(recommender, split) if has_time_scales(model.readout) else [],
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
        temporary.write_text(inspected.model_dump_json() + "\n", encoding="utf-8")


def read(path: Path) -> Inspection:
    """Read what `write` wrote."""
    try:
        return Inspection.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        reason = explain_validation(error) if isinstance(error, ValidationError) else error
        raise DataError(f"{path}: not an inspection ({reason}). Inspect the model anew.") from None


# -------------------------------------------------------------- time scales


@dataclass(frozen=True)
class Heads:
    """The heads of a readout with time scales, for N test histories."""

    rates: Tensor
    """(N, K) exponents."""
    half_lives: Tensor
    """(N, K) in hours or events, at most `FOREVER`."""
    gate: Tensor
    """(N, K) weights among the heads."""
    divergence: float
    """Mean over histories and pairs of heads, see `Decay`."""
    users: Tensor
    """(N, d) user vectors."""
    rests: Tensor
    """(N, d) what belongs to no single event."""
    targets: Tensor
    """(N,) codes of the items that came next."""


def has_time_scales(readout: Readout) -> bool:
    """Whether `read_heads` finds any."""
    return readout.splits and readout.time_scales() is not None


def read_heads(recommender: Recommender) -> Heads:
    """What the heads of a readout with time scales are on each test history."""
    model = recommender.network
    read: list[tuple[Tensor, ...]] = []
    divergence = 0.0
    with torch.no_grad():
        for batch in over_test_histories(recommender):
            embedded, states = model.encode(batch)
            weights = []
            for row, length in enumerate(batch.lengths.tolist()):
                one = slice(row, row + 1)
                parts = model.readout.contributions(states[one, :length], embedded[one, :length], batch[one])
                assert parts is not None
                assert parts.scales is not None
                lives, target = parts.scales.half_lives.clamp(max=FOREVER), batch.targets[row, length - 1]
                read.append((parts.scales.rates, lives, parts.gate, parts.user, parts.rest, target))
                weights.append(F.pad(parts.weights, (0, states.shape[1] - length)))
            divergence -= float(diversity_loss(torch.stack(weights))) * len(weights)
    rates, half_lives, gate, *vectors = (torch.stack(values).cpu() for values in zip(*read, strict=True))
    pairs = max(1, rates.shape[1] * (rates.shape[1] - 1))  # the loss sums them, in both orders
    return Heads(rates, half_lives, gate, divergence / len(rates) / pairs, *vectors)


def _removed(model: SequenceModel, read: Heads) -> Removed:
    """Rank the test targets with and without what past events add. Scores of repeats are no part of user vectors."""
    device = model.items.weight.device
    complete, rest = (
        figures(measures(ks=(10,)), target_ranks(model.score, users.to(device), read.targets.to(device)).numpy())
        for users in (read.users, read.rests)
    )
    cosine = F.cosine_similarity(read.users - read.rests, read.rests)
    return Removed(complete=complete, rest=rest, cosine=Spread.of(cosine.double().numpy()))


def _decay(recommender: Recommender) -> Decay | None:
    readout = recommender.network.readout
    scales = readout.time_scales()
    if scales is None or not has_time_scales(readout):
        return None
    read = read_heads(recommender)
    base, base_lives = scales.rates.tolist(), scales.half_lives.clamp(max=FOREVER).tolist()
    rates, lives, gate = (values.double().numpy() for values in (read.rates, read.half_lives, read.gate))
    heads = [
        Head(
            base_rate=base[k],
            base_half_life=base_lives[k],
            rates=Spread.of(rates[:, k]),
            half_lives=Spread.of(lives[:, k], log=True),
            gate=Spread.of(gate[:, k]),
            mean_gate=float(gate[:, k].mean()),
        )
        for k in range(len(base))
    ]
    return Decay(
        heads=heads,
        divergence=read.divergence,
        time_scale=scales.scale,
        clock="request" if readout.sees_request_time else "last-event",
        unit=scales.age_unit,
        removed=_removed(recommender.network, read),
    )
