"""THE place where a score is split: what a model made of one history, and what each event adds to a score.

A linear score is the user vector times the item's vector v, and a readout such as MARS tells what each past event adds
to the user vector. So the score is a rest (the last state's, for MARS) plus one term per past event and head::

    score(item) = rest · v  +  Σ_k Σ_i  gate_k w_k,i (value_i · v)
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.data.histories import Vocabulary
from marsrec.data.moments import age_seconds, spell_age, spell_duration
from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.base import Contributions
from marsrec.recommender.inference import Inference, Window

PIECE = 4096
"""Events of a long history that are encoded at a time."""


@dataclass(frozen=True)
class ScoreSplit:
    """Scores of n items in parts that sum to them."""

    rest: Tensor
    """(n,) what belongs to no single event: the last state's share."""
    shares: Tensor
    """(n, K, S) shares of the latest events by head."""
    earlier: Tensor
    """(n, K) shares of all events before those."""


@dataclass(frozen=True)
class Reading:
    """A history as a model saw it, oldest event first."""

    codes: NDArray[np.int64]
    times: NDArray[np.int64]
    now: int
    """From when ages are measured."""
    user: Tensor
    """(d,) user vector."""
    parts: Contributions | None
    """What the events add to it; None for models that do not tell."""
    earlier: int = 0
    """How many more events counted before these."""

    def latest(self, shown: int) -> "Reading":
        """What was read of the latest `shown` events; the numbers before them can be let go."""
        parts = self.parts
        if parts is not None:
            parts = replace(
                parts, values=parts.values[..., -shown:, :].clone(), weights=parts.weights[:, -shown:].clone()
            )
        codes, times = self.codes[-shown:].copy(), self.times[-shown:].copy()
        earlier = self.earlier + len(self.codes) - len(codes)
        return replace(self, codes=codes, times=times, parts=parts, earlier=earlier)

    @torch.no_grad()
    def split(self, network: SequenceModel, codes: Tensor, shown: int) -> ScoreSplit | None:
        """Scores of items in parts, those of the latest `shown` events one by one; None where scores do not split."""
        if self.parts is None or not network.splits:
            return None
        vectors = network.items.weight[codes.long()]  # (n, d)
        weights = self.parts.gate[:, None] * self.parts.weights  # (K, L)
        each = (vectors @ self.parts.values.mT).expand(len(weights), -1, -1)  # (K, n, L)
        shares = weights[:, None, -shown:] * each[..., -shown:]
        earlier = torch.einsum("kl,knl->nk", weights[:, :-shown], each[..., :-shown])
        return ScoreSplit(vectors @ self.parts.rest, shares.transpose(0, 1), earlier)


@torch.no_grad()
def read(inference: Inference, window: Window, at: int, *, folded: bool = False) -> Reading:
    """Read out one history at the moment of a request.

    Parameters
    ----------
    inference : Inference
        The model.
    window : Window
        Events, all of which are looked at.
    at : int
        The moment of the request.
    folded : bool
        Take the events in and weigh them as a session of a recurrent model does.
    """
    return read_batch(inference.network, inference.batch([window], [at]), folded=folded)


@torch.no_grad()
def read_batch(network: SequenceModel, batch: Batch, *, folded: bool = False) -> Reading:
    """The same for a batch of one history."""
    embedded, states = _folded(network, batch.items) if folded else network.encode(batch)
    parts = network.readout.contributions(states, embedded, batch, folded=folded)
    user = parts.user if parts is not None else network.readout(states, embedded, batch, at_targets=False).users[0]
    now = (batch.target_times if network.sees_request_time else batch.times)[0, -1]
    return Reading(batch.items[0].cpu().numpy(), batch.times[0].cpu().numpy(), int(now), user, parts)


def _folded(network: SequenceModel, items: Tensor) -> tuple[Tensor, Tensor]:
    """What `SequenceModel.encode` gives, some events at a time: a long history takes less memory."""
    embedded: Tensor = network.items(items)
    memory, states = network.encoder.start(len(items)), []
    for start in range(0, items.shape[1], PIECE):
        part, memory = network.encoder.resume(memory, embedded[:, start : start + PIECE])
        states.append(part)
    return embedded, torch.cat(states, dim=1)


@dataclass(frozen=True)
class Explanation:
    """A score and the terms that sum to it."""

    score: float
    last_state: float
    """The share of the encoder's last state; all of the score where it does not split."""
    terms: pl.DataFrame
    """A row per event and head: event (1 is the latest), item, time, age, head, half_life, gate, weight, share. Age and
    half-life stand in words and in seconds (a half-life counted in events has no seconds). A column `title` may stand
    beside the item."""

    def by_event(self) -> pl.DataFrame:
        """Shares of the past events, summed over the heads, largest first."""
        event = [name for name in _EVENT if name in self.terms.columns]
        return (
            self.terms.group_by(event, maintain_order=True)
            .agg(pl.col("share").sum())
            .sort("share", descending=True, maintain_order=True)
        )

    def by_head(self) -> pl.DataFrame:
        """Shares of the heads, summed over the events."""
        head = ["head", "half_life", "half_life_seconds", "gate"]
        return self.terms.group_by(head, maintain_order=True).agg(pl.col("share").sum())


@torch.no_grad()
def explain(reading: Reading, network: SequenceModel, code: int, item_ids: Vocabulary, unit: TimeUnit) -> Explanation:
    """Split the score of one item for a history that was read."""
    score = float(network.score(reading.user[None])[0, code])
    split = reading.split(network, torch.tensor([code]), len(reading.codes))
    if split is None or reading.parts is None:
        return Explanation(score, score, pl.DataFrame(schema=_TERMS))
    heads, length = reading.parts.weights.shape
    ages = ((reading.now - reading.times) / PER_SECOND[unit]).tolist()
    lives: list[tuple[str | None, float | None]] = [(None, None)] * heads
    if (scales := reading.parts.scales) is not None:
        lives = [
            (spell_age(life, scales.age_unit), age_seconds(life, scales.age_unit))
            for life in scales.half_lives.tolist()
        ]

    def of_heads(values: list[Any]) -> list[Any]:
        return [value for value in values for _ in range(length)]

    terms = pl.DataFrame(
        {
            "event": list(range(length, 0, -1)) * heads,
            "item": item_ids.decode(np.tile(reading.codes, heads)),
            "time": np.tile(reading.times, heads),
            "age": [spell_duration(age) for age in ages] * heads,
            "age_seconds": ages * heads,
            "head": of_heads(list(range(1, heads + 1))),
            "half_life": of_heads([words for words, _ in lives]),
            "half_life_seconds": of_heads([seconds for _, seconds in lives]),
            "gate": reading.parts.gate.repeat_interleave(length).cpu().numpy(),
            "weight": reading.parts.weights.flatten().cpu().numpy(),
            "share": split.shares[0].flatten().cpu().numpy(),
        },
        schema_overrides={"half_life": pl.String, "half_life_seconds": pl.Float64},  # which may all be null
    )
    return Explanation(score, float(split.rest[0]), terms)


_EVENT = ("event", "item", "title", "time", "age", "age_seconds")
_TERMS = pl.Schema(
    {
        "event": pl.Int64,
        "item": pl.String,
        "time": pl.Int64,
        "age": pl.String,
        "age_seconds": pl.Float64,
        "head": pl.Int64,
        "half_life": pl.String,
        "half_life_seconds": pl.Float64,
        "gate": pl.Float32,
        "weight": pl.Float32,
        "share": pl.Float32,
    }
)
