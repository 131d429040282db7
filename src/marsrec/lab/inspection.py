"""Inspection of a trained model on its test histories: attention entropy, decay rates, gate, and example users."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ValidationError
from torch import Tensor

from marsrec.data.batches import contexts, gather
from marsrec.data.moments import AgeUnit
from marsrec.data.splits import Split, Targets
from marsrec.errors import DataError
from marsrec.evaluation.evaluate import evaluate
from marsrec.evaluation.ranking import top_k
from marsrec.explanation import Explanation, explain_score
from marsrec.lab.attention import Entropy, attention_entropy, over_test_histories
from marsrec.nn.mars import MARS, diversity_loss
from marsrec.nn.readouts.mars import Mars
from marsrec.recommender import Recommender
from marsrec.settings import Settings, explain_validation
from marsrec.storage import atomic_file

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Which quantiles are kept."""
BINS = 30
TOP = 3
"""Recommendations that are shown of an example user."""
EVENTS = 100
"""Latest events that are kept of an example user."""
POOL = 1000
"""Histories of about the wanted length among which an example is chosen."""
FOREVER = 1e9
"""Half-lives end here: over 100,000 years in hours. A head that hardly decays would have an infinite one."""


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
        return cls(quantiles=_short(np.quantile(values, LEVELS)), edges=_short(edges), counts=counts.tolist())


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


class Event(Settings):
    """An event of an example user."""

    item: str
    time: int
    age: float
    weights: list[float]
    """Of the event in each head."""
    share: float | None
    """In the score of the first recommendation, by all heads."""


class Scored(Settings):
    """An item with its rank and its score, which is the sum of the shares."""

    item: str
    rank: float
    score: float
    last_state: float
    """Share of the encoder's last state."""
    heads: list[float]
    """Share of each head; empty where the scorer is not linear, so that there is nothing to split."""


class Example(Settings):
    """A user of the test: what was seen, how it was weighed, what was recommended and what came next."""

    kind: str
    """How the user was chosen."""
    user: str
    length: int
    """Number of events that the model saw; the latest of them are listed."""
    events: list[Event]
    """Oldest first."""
    half_lives: list[float]
    gate: list[float]
    top: list[Scored]
    following: Scored
    """The item that the user really took next."""


class Inspection(Settings):
    """What there is to see in a trained model."""

    format: int = 1
    data: str | None
    model: str
    histories: int
    """Number of test histories."""
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
            attention=attention_entropy(recommender),
            decay=_decay(recommender, model.readout) if isinstance(model.readout, Mars) else None,
            examples=_examples(recommender, split) if isinstance(model.readout, Mars) else [],
        )


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
    lives, base_lives = _half_lives(operator, rates), _half_lives(operator, base)
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


def _half_lives(operator: MARS, rates: Tensor) -> NDArray[Any]:
    lives: NDArray[Any] = operator.half_lives(rates.double().cpu()).clamp(max=FOREVER).numpy()
    return lives


# ----------------------------------------------------------- example users


def _examples(recommender: Recommender, split: Split) -> list[Example]:
    """The best results on a history of typical length and on a long one, and a typical result.

    Of the histories whose length is nearest to the median (the 90 % quantile), take those whose next item has the best
    rank, or the rank nearest to their median; of these the one with most different times of events, and the first.
    """
    wanted = [
        ("next item of best rank, history of median length", 0.5, True),
        ("next item of best rank, long history (90 % quantile)", 0.9, True),
        ("next item of median rank, history of median length", 0.5, False),
    ]
    length = recommender.settings.length
    rows = contexts(split.histories, split.test, length)
    lengths = rows[:, 1] - rows[:, 0]
    pool = max(10, min(POOL, len(rows) // 10))
    found: dict[int, Example] = {}
    for kind, level, best_rank in wanted:
        near = np.sort(np.argsort(np.abs(lengths - np.quantile(lengths, level)), kind="stable")[:pool])
        targets = Targets(split.test.users[near], split.test.positions[near])
        ranks = evaluate(recommender.network, replace(split, test=targets), length).ranks
        worse = ranks if best_rank else np.abs(ranks - np.median(ranks))
        moments = [len(np.unique(split.histories.times[start:end])) for start, end, _ in rows[near]]
        best = np.lexsort((np.negative(moments), worse))[0]
        found.setdefault(int(near[best]), _example(recommender, split, rows[near[best]], ranks[best], kind))
    return list(found.values())


def _example(recommender: Recommender, split: Split, row: NDArray[np.int64], rank: float, kind: str) -> Example:
    model, histories = recommender.network, split.histories
    assert isinstance(model.readout, Mars)
    operator, settings = model.readout.operator, model.readout.settings
    batch = gather(histories, row[None]).to(model.items.weight.device)
    embedded, states = model.encode(batch)
    reading = model.readout.read(states, embedded, batch)
    assert reading.weights is not None
    length = int(batch.lengths[0])
    codes = top_k(model.score, model(batch).users, min(TOP, len(recommender.item_ids)))[1][0].tolist()
    codes.append(int(histories.items[row[2]]))
    explained = [explain_score(model, batch, code, recommender.item_ids, recommender.unit) for code in codes]
    items = recommender.item_ids.decode(np.array(codes))
    places = [*range(1, len(codes)), rank]
    *top, following = map(_scored, items, places, explained)
    now = (batch.target_times if settings.clock == "request" else batch.times)[0, -1]
    ages = (now - batch.times[0]).double() / operator.tau0 if settings.real_time else torch.arange(length).flip(0)
    terms = explained[0].terms["share"].to_numpy()
    shares = _short(terms.reshape(-1, length).sum(0)) if len(terms) else [None] * length
    events = [
        Event(
            item=str(item),
            time=int(batch.times[0, i]),
            age=float(ages[i]),
            weights=_short(reading.weights[0, :, i]),
            share=shares[i],
        )
        for i, item in enumerate(recommender.item_ids.decode(batch.items[0].cpu().numpy()))
    ]
    user = int(np.searchsorted(histories.offsets, row[0], side="right")) - 1
    return Example(
        kind=kind,
        user=str(histories.user_ids.ids[user]),
        length=length,
        events=events[-EVENTS:],
        half_lives=_half_lives(operator, reading.rates[0, 0]).tolist(),
        gate=_short(reading.gate[0, 0]),
        top=top,
        following=following,
    )


def _scored(item: Any, rank: float, explained: Explanation) -> Scored:
    heads = explained.by_head()["share"].to_list()
    return Scored(item=str(item), rank=rank, score=explained.score, last_state=explained.last_state, heads=heads)


def _short(values: Any) -> list[float]:
    """Numbers to six digits, which keeps files small."""
    return [float(f"{float(value):.6g}") for value in values]
