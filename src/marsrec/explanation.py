"""Why an item is recommended: its score, split exactly.

The score is linear in the user vector, and MARS adds to the last state a weighted sum of all states. So the score is
the last state's share plus one term per past event and head::

    score(item) = h_last · v  +  Σ_k Σ_i  α_k w_k,i (h_i · v)          (v is the item's vector)

With `values` it is a weighted sum of W_v h_i instead.
"""

from dataclasses import dataclass

import polars as pl
import torch

from marsrec.data.batches import Batch
from marsrec.data.histories import Vocabulary
from marsrec.data.moments import age_seconds, spell_age, spell_duration
from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.mars import Mars
from marsrec.nn.scorers import Dot


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


def explain_score(model: SequenceModel, batch: Batch, code: int, item_ids: Vocabulary, unit: TimeUnit) -> Explanation:
    """Split the score of one item for one history."""
    with torch.no_grad():
        embedded = model.items(batch.items)
        states = model.encoder(embedded, batch)
        users = model.readout(states, embedded, batch, at_targets=False).users
        user, items, bias = model.scorer(users, model.items.weight)
        vector = items[code].detach()
        score = float(user[0] @ vector) + (0.0 if bias is None else float(bias[code]))
        if not isinstance(model.readout, Mars) or not isinstance(model.scorer, Dot):  # nothing to split linearly
            return Explanation(score, score, pl.DataFrame(schema=_TERMS))
        reading = model.readout.read(states, embedded, batch)
        assert reading.weights is not None
        gate, weights = reading.gate[0, 0], reading.weights[0]  # (K,), (K, L)
        operator = model.readout.operator
        shares = gate[:, None] * weights * (operator.values(states[0]) @ vector)  # (K, L)
        heads, length = shares.shape
        lives = operator.half_lives(reading.rates[0, 0]).tolist()
        now = (batch.target_times if model.readout.settings.clock == "request" else batch.times)[0, -1]
        ages = ((now - batch.times[0]).double() / PER_SECOND[unit]).tolist()
        terms = pl.DataFrame(
            {
                "event": list(range(length, 0, -1)) * heads,
                "item": item_ids.decode(batch.items[0].repeat(heads).cpu().numpy()),
                "time": batch.times[0].repeat(heads).cpu().numpy(),
                "age": [spell_duration(age) for age in ages] * heads,
                "age_seconds": ages * heads,
                "head": torch.arange(1, heads + 1).repeat_interleave(length).numpy(),
                "half_life": [spell_age(life, operator.age_unit) for life in lives for _ in range(length)],
                "half_life_seconds": [age_seconds(life, operator.age_unit) for life in lives for _ in range(length)],
                "gate": gate.repeat_interleave(length).cpu().numpy(),
                "weight": weights.flatten().cpu().numpy(),
                "share": shares.flatten().cpu().numpy(),
            },
            schema_overrides={"half_life_seconds": pl.Float64},  # which may all be null
        )
    return Explanation(score, float(states[0, -1] @ vector), terms)


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
