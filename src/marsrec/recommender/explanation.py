"""THE place where a score is split: what a model made of one history, and what each event adds to a score.

A linear score is the user vector times the item's vector v, and a readout such as MARS tells what each past event adds
to the user vector. So the score is a rest (the last state's, for MARS) plus one term per past event and head::

    score(item) = rest · v  +  Σ_k Σ_i  gate_k w_k,i (value_i · v)

Where a model also scores items that the user had (`marsrec.nn.repeats`), that is the share of the latest event with the
item, under one more head.
"""

from dataclasses import dataclass, replace
from io import StringIO
from typing import Any

import numpy as np
import polars as pl
import torch
from numpy.typing import NDArray
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.data.histories import Vocabulary
from marsrec.data.moments import age_seconds, spell_age, spell_duration
from marsrec.data.times import PER_SECOND, TimeUnit
from marsrec.nn.model import SequenceModel
from marsrec.nn.readouts.base import Contributions
from marsrec.nn.repeats import Added
from marsrec.recommender.html import of_explanation
from marsrec.recommender.inference import Inference, Window
from marsrec.recommender.sentence import Clock, past_event, why

PIECE = 4096
"""Events of a long history that are encoded at a time."""
HAD_BEFORE = "had before"
"""What stands in place of a half-life for what repeats add."""


@dataclass(frozen=True)
class ScoreSplit:
    """Scores of n items in parts that sum to them."""

    rest: Tensor
    """(n,) what belongs to no single event: the last state's share."""
    shares: Tensor
    """(n, K, S) shares of the latest events by head; K + 1 where repeats are scored, which the last one is for."""
    earlier: Tensor
    """(n, K) shares of all events before those."""


@dataclass(frozen=True)
class Reading:
    """A history as a model saw it, oldest event first."""

    codes: NDArray[np.int64]
    times: NDArray[np.int64]
    now: int
    """Moment from which ages are measured."""
    user: Tensor
    """(d,) user vector."""
    parts: Contributions | None
    """What the events add to it; None for models that do not tell."""
    earlier: int = 0
    """How many more events counted before these."""
    own: Added | None = None
    """Scores of own items, of models that have them."""

    def own_score(self, code: int) -> float:
        """What it adds to an item's score that the user had it before."""
        if self.own is None:
            return 0.0
        _, codes, values = self.own
        return float(values[codes == code].sum())

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
        split = ScoreSplit(vectors @ self.parts.rest, shares.transpose(0, 1), earlier)
        return split if self.own is None else self._with_repeats(split, codes)

    def _with_repeats(self, split: ScoreSplit, codes: Tensor) -> ScoreSplit:
        """Give what repeats add to the latest event with each item."""
        repeats = split.rest.new_zeros(len(codes), len(self.codes))
        for row, code in enumerate(codes.tolist()):
            if score := self.own_score(code):
                repeats[row, int(np.flatnonzero(self.codes == code)[-1])] = score
        shown = split.shares.shape[2]
        shares = torch.cat([split.shares, repeats[:, None, -shown:]], dim=1)
        return replace(
            split, shares=shares, earlier=torch.cat([split.earlier, repeats[:, None, :-shown].sum(2)], dim=1)
        )


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
    own = network.own_scores(batch)
    return Reading(batch.items[0].cpu().numpy(), batch.times[0].cpu().numpy(), int(now), user, parts, own=own)


def _folded(network: SequenceModel, items: Tensor) -> tuple[Tensor, Tensor]:
    """What `SequenceModel.encode` gives, some events at a time: a long history takes less memory."""
    embedded: Tensor = network.items(items)
    memory, states = network.encoder.start(len(items)), []
    for start in range(0, items.shape[1], PIECE):
        part, memory = network.encoder.resume(memory, embedded[:, start : start + PIECE])
        states.append(part)
    return embedded, torch.cat(states, dim=1)


@dataclass(frozen=True, repr=False)
class Explanation:
    """A score and the terms that sum to it.

    Printed, a sentence that says why, and the past events that count most; in a notebook also a bar for each of these.
    """

    item: Any
    """Raw id of the item whose score it is."""
    title: str | None
    """What people call the item; None where the data brought no title."""
    score: float
    last_state: float
    """The share of the encoder's last state; all of the score where it does not split."""
    terms: pl.DataFrame
    """A row per event and head: event (1 is the latest), item, title (where the data brought titles), time, age, head,
    half_life, gate, weight, share. Age and half-life stand in words and in seconds (a half-life counted in events has
    no seconds, and what repeats add has "had before" in its place)."""
    clock: Clock
    """Moment from which ages are measured: the moment of the request, or the latest event."""

    def by_event(self) -> pl.DataFrame:
        """Shares of the past events, summed over the heads, largest first."""
        return _summed(self.terms, _EVENT).sort("share", descending=True, maintain_order=True)

    def by_head(self) -> pl.DataFrame:
        """Shares of the heads, summed over the events."""
        return _summed(self.terms, _HEAD)

    def sentence(self) -> str:
        """Say why the item has its score.

        A percentage is an event's share, summed over the heads, of what past events add in favour of the item: of the
        sum of such shares that are above zero. The last state's share does not belong to it; where that is a tenth as
        large or more, the sentence says how much of the score past events bring. To a head that never fades all past
        events are alike, and they are one reason.
        """
        name = self.title or str(self.item)
        if self.terms.is_empty():
            return f"{name}: the score of this model does not split over past events."
        events = [
            past_event(_name(row), row["age_seconds"], self.clock, latest=row["event"] == 1)
            for row in self.terms.filter(head=1).iter_rows(named=True)
        ]
        shares = self.terms["share"].to_numpy().reshape(-1, len(events))
        return why(name, events, shares, self.terms["half_life"].gather_every(len(events)).to_list(), self.last_state)

    def text(self, top: int = 5) -> str:
        """The sentence, the past events that count most (for or against the item), and the heads.

        Parameters
        ----------
        top : int
            How many past events have a line of their own.
        """
        if self.terms.is_empty():
            return f"{self.sentence()}\nscore {self.score:+.4f}"
        events = sorted(self.by_event().iter_rows(named=True), key=lambda row: -abs(row["share"]))
        rows = [[str(row["event"]), _name(row), row["age"], f"{row['share']:+.4f}"] for row in events[:top]]
        if others := events[top:]:
            named = f"{len(others):,} other{'s' if len(others) > 1 else ''}"
            rows.append(["", named, "", f"{sum(row['share'] for row in others):+.4f}"])
        rows += [["", "last state", "", f"{self.last_state:+.4f}"], ["", "score", "", f"{self.score:+.4f}"]]
        heads = [
            [str(row["head"]), row["half_life"] or "", f"{row['gate']:.2f}", f"{row['share']:+.4f}"]
            for row in self.by_head().iter_rows(named=True)
        ]
        return "\n\n".join(
            [
                self.sentence(),
                _aligned({"event": "right", "": "left", "age": "left", "share": "right"}, rows),
                _aligned({"head": "right", "half-life": "left", "gate": "right", "share": "right"}, heads),
            ]
        )

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return f"<Explanation: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return of_explanation(self)


def _summed(terms: pl.DataFrame, by: tuple[str, ...]) -> pl.DataFrame:
    columns = [name for name in by if name in terms.columns]
    return terms.group_by(columns, maintain_order=True).agg(pl.col("share").sum())


def _name(row: dict[str, Any]) -> str:
    return row.get("title") or str(row["item"])


def _aligned(columns: dict[str, JustifyMethod], rows: list[list[str]]) -> str:
    """A table without lines, as wide as its cells are."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name, side in columns.items():
        table.add_column(name, justify=side, no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=StringIO(), width=1000)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


@torch.no_grad()
def explain(reading: Reading, network: SequenceModel, code: int, item_ids: Vocabulary, unit: TimeUnit) -> Explanation:
    """Split the score of one item for a history that was read."""
    score = float(network.score(reading.user[None])[0, code]) + reading.own_score(code)
    split = reading.split(network, torch.tensor([code]), len(reading.codes))
    item, titles = item_ids.ids[code - 1], item_ids.titles
    title = None if titles is None else titles[code - 1]
    clock = _clock(network)
    if split is None or reading.parts is None:
        return Explanation(item, title, score, score, pl.DataFrame(schema=_TERMS), clock)
    length, gate, weights = len(reading.codes), reading.parts.gate, reading.parts.weights
    ages = ((reading.now - reading.times) / PER_SECOND[unit]).tolist()
    lives: list[tuple[str | None, float | None]] = [(None, None)] * len(gate)
    if (scales := reading.parts.scales) is not None:
        lives = [
            (spell_age(life, scales.age_unit), age_seconds(life, scales.age_unit))
            for life in scales.half_lives.tolist()
        ]
    if reading.own is not None:
        lives.append((HAD_BEFORE, None))
        gate = torch.cat([gate, gate.new_ones(1)])
        weights = torch.cat([weights, (split.shares[0, -1:] != 0).to(weights)])
    heads = len(lives)

    def of_heads(values: list[Any]) -> list[Any]:
        return [value for value in values for _ in range(length)]

    terms = pl.DataFrame(
        {
            "event": list(range(length, 0, -1)) * heads,
            "item": item_ids.decode(np.tile(reading.codes, heads)),
            **({} if titles is None else {"title": titles.gather(np.tile(reading.codes, heads) - 1)}),
            "time": np.tile(reading.times, heads),
            "age": [spell_duration(age) for age in ages] * heads,
            "age_seconds": ages * heads,
            "head": of_heads(list(range(1, heads + 1))),
            "half_life": of_heads([words for words, _ in lives]),
            "half_life_seconds": of_heads([seconds for _, seconds in lives]),
            "gate": gate.repeat_interleave(length).cpu().numpy(),
            "weight": weights.flatten().cpu().numpy(),
            "share": split.shares[0].flatten().cpu().numpy(),
        },
        schema_overrides={"half_life": pl.String, "half_life_seconds": pl.Float64},  # which may all be null
    )
    return Explanation(item, title, score, float(split.rest[0]), terms, clock)


@torch.no_grad()
def sentences(
    reading: Reading, network: SequenceModel, codes: NDArray[np.int64], item_ids: Vocabulary, unit: TimeUnit
) -> list[str] | None:
    """What `Explanation.sentence` says of each of many items; None where scores do not split."""
    if reading.parts is None or not network.splits:
        return None
    ages = ((reading.now - reading.times) / PER_SECOND[unit]).tolist()
    latest, clock = len(ages) - 1, _clock(network)
    events = [
        past_event(name, age, clock, latest=place == latest)
        for place, (name, age) in enumerate(zip(_names(reading.codes, item_ids), ages, strict=True))
    ]
    scales = reading.parts.scales
    lives: list[str | None] = [None] * len(reading.parts.weights)
    if scales is not None:
        lives = [spell_age(life, scales.age_unit) for life in scales.half_lives.tolist()]
    lives += [HAD_BEFORE] * (reading.own is not None)
    said = []
    for name, code in zip(_names(codes, item_ids), codes.tolist(), strict=True):
        split = reading.split(network, torch.tensor([code]), len(events))  # one by one: histories may be long
        assert split is not None
        said.append(why(name, events, split.shares[0].cpu().numpy(), lives, float(split.rest[0])))
    return said


def _clock(network: SequenceModel) -> Clock:
    return "request" if network.sees_request_time else "last-event"


def _names(codes: NDArray[np.int64], item_ids: Vocabulary) -> list[str]:
    """What people call items: titles, and ids where there are none."""
    ids = item_ids.decode(codes)
    titles = [None] * len(ids) if item_ids.titles is None else item_ids.titles.gather(codes - 1).to_list()
    return [title or str(item) for title, item in zip(titles, ids, strict=True)]


_EVENT = ("event", "item", "title", "time", "age", "age_seconds")
_HEAD = ("head", "half_life", "half_life_seconds", "gate")
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
