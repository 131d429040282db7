"""Answers of the worker as JSON: raw ids for codes, and durations also in words."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from marsrec.data.moments import age_seconds, spell_age, spell_duration
from marsrec.data.times import PER_SECOND
from marsrec.models import title
from marsrec.nn.mars import MARS
from marsrec.nn.readouts.mars import Mars
from marsrec.serve.answer_schemas import (
    Explanation,
    Head,
    IndexInfo,
    ModelInfo,
    ReadEvent,
    ReadHistory,
    Recommended,
    UserEvent,
)
from marsrec.serve.jobs import Answer, Model
from marsrec.serve.live import History, as_raw
from marsrec.serve.reading import Reading, Split


def raw_items(model: Model, codes: Sequence[int]) -> list[Any]:
    """Raw ids of items."""
    return model.recommender.item_ids.decode(np.array(codes, dtype=np.int64)).to_list()


def item_titles(model: Model, codes: Sequence[int]) -> list[str | None]:
    """Titles of items; None where the data brought none."""
    titles = model.recommender.item_ids.titles
    return [None] * len(codes) if titles is None else titles.gather([code - 1 for code in codes]).to_list()


def recommended(model: Model, answer: Answer) -> list[Recommended]:
    """The items of an answer, explained if it was read for that."""
    return [
        Recommended(rank=rank, item=item, title=named, score=score, explanation=explanation)
        for rank, (item, named, score, explanation) in enumerate(
            zip(
                raw_items(model, answer.codes),
                item_titles(model, answer.codes),
                answer.scores,
                _explained(answer.split, len(answer.codes)),
                strict=True,
            ),
            start=1,
        )
    ]


def _explained(split: Split | None, count: int) -> list[Explanation] | list[None]:
    if split is None:
        return [None] * count
    parts = zip(split.last.tolist(), split.shares.mT.tolist(), split.earlier.tolist(), strict=True)
    return [Explanation(last_state=last, shares=shares, earlier=earlier) for last, shares, earlier in parts]


def read_history(model: Model, reading: Reading) -> ReadHistory:
    """What a model made of a history."""
    readout = model.network.readout
    codes, times = reading.codes, reading.times
    told, weights = [], None
    if reading.heads is not None and isinstance(readout, Mars):
        told = _heads(readout.operator, reading.heads.rates, reading.heads.gate.tolist())
        weights = reading.heads.weights.T.tolist()
    ages = ((reading.now - times) / PER_SECOND[model.recommender.unit]).tolist()
    seen = raw_items(model, codes.tolist()), item_titles(model, codes.tolist()), times, ages
    events = [
        ReadEvent(
            item=item,
            title=named,
            time=int(time),
            age_seconds=age,
            age=spell_duration(age),
            weights=None if weights is None else weights[place],
        )
        for place, (item, named, time, age) in enumerate(zip(*seen, strict=True))
    ]
    return ReadHistory(
        clock=readout.settings.clock if isinstance(readout, Mars) else None,
        now=reading.now,
        time_scale=readout.settings.time_scale if isinstance(readout, Mars) else None,
        heads=told,
        events=events,
        earlier=reading.earlier,
    )


def _heads(operator: MARS, rates: torch.Tensor, gates: Sequence[float | None]) -> list[Head]:
    heads, lives = [], operator.half_lives(rates).tolist()
    for number, (rate, life, gate) in enumerate(zip(rates.tolist(), lives, gates, strict=True), start=1):
        seconds, half_life = age_seconds(life, operator.age_unit), spell_age(life, operator.age_unit)
        heads.append(Head(head=number, rate=rate, half_life_seconds=seconds, half_life=half_life, gate=gate))
    return heads


def user_events(model: Model, history: History) -> list[UserEvent]:
    """Events of a user."""
    columns = history.items, history.times, history.codes, history.stored
    item_ids, titles = model.recommender.item_ids, model.recommender.item_ids.titles
    return [
        UserEvent(
            item=as_raw(item, item_ids),
            title=titles[int(code) - 1] if code > 0 and titles is not None else None,
            time=int(time),
            known=code > 0,
            stored=bool(stored),
        )
        for item, time, code, stored in zip(*columns, strict=True)
    ]


def model_info(model: Model) -> ModelInfo:
    """All about a model."""
    recommender, network = model.recommender, model.network
    histories, metrics = recommender.histories, dict(recommender.metrics)
    readout, heads = network.readout, []
    if isinstance(readout, Mars):
        with torch.no_grad():
            rates = readout.operator.base_rates()
            heads = _heads(readout.operator, rates, [None] * len(rates))
    return ModelInfo(
        name=model.name,
        title=title(recommender.settings),
        fingerprint=recommender.fingerprint().hex(),
        loaded=model.loaded,
        items=len(recommender.item_ids),
        users=0 if histories is None else histories.n_users,
        unit=recommender.unit,
        log_end=recommender.log_end,
        length=recommender.settings.length,
        recurrent=network.recurrent,
        clock=readout.settings.clock if isinstance(readout, Mars) else None,
        time_scale=readout.settings.time_scale if isinstance(readout, Mars) else None,
        heads=heads,
        index=None if (made := model.shortlist) is None else IndexInfo.model_validate(made, from_attributes=True),
        parameters=network.parameter_count(),
        settings=recommender.settings.model_dump(mode="json"),
        data=metrics.pop("data", {}),
        metrics={name: metrics[name] for name in ("valid", "test", "protocol", "best_epoch") if name in metrics},
    )
