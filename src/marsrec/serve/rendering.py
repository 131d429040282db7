"""What the worker found as the schemas of several endpoints: raw ids for codes, and durations also in words."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from marsrec.data.moments import age_seconds, spell_age, spell_duration
from marsrec.data.times import PER_SECOND
from marsrec.nn.readouts.base import TimeScales
from marsrec.recommender.explanation import Reading
from marsrec.serve.models import Model
from marsrec.serve.schemas import Head, ReadEvent, ReadHistory


def raw_items(model: Model, codes: Sequence[int]) -> list[Any]:
    """Raw ids of items."""
    return model.recommender.item_ids.decode(np.array(codes, dtype=np.int64)).to_list()


def named_items(model: Model, codes: Sequence[int]) -> list[dict[str, Any]]:
    """The fields of `NamedItem`: raw ids, titles and categories; None where the data brought none."""
    ids, places = model.recommender.item_ids, [code - 1 for code in codes]
    titles, categories = (
        [None] * len(places) if known is None else known.gather(places).to_list()
        for known in (ids.titles, ids.categories)
    )
    columns = zip(raw_items(model, codes), titles, categories, strict=True)
    return [{"item": item, "title": title, "category": category} for item, title, category in columns]


def read_history(model: Model, reading: Reading | None) -> ReadHistory | None:
    """What a model made of a history."""
    if reading is None:
        return None
    parts, scales = reading.parts, None if reading.parts is None else reading.parts.scales
    weights = None if parts is None else parts.weights.T.tolist()
    ages = ((reading.now - reading.times) / PER_SECOND[model.recommender.unit]).tolist()
    columns = named_items(model, reading.codes.tolist()), reading.times, ages
    events = [
        ReadEvent(
            **named,
            time=int(time),
            age_seconds=age,
            age=spell_duration(age),
            weights=None if weights is None else weights[place],
        )
        for place, (named, time, age) in enumerate(zip(*columns, strict=True))
    ]
    return ReadHistory(
        clock=clock(model),
        now=reading.now,
        time_scale=None if scales is None else scales.scale,
        heads=[] if parts is None else heads(scales, parts.gate.tolist()),
        events=events,
        earlier=reading.earlier,
    )


def clock(model: Model) -> Literal["last-event", "request"] | None:
    """From when a model measures ages; None if it does not."""
    network = model.inference.network
    if network.sees_request_time:
        return "request"
    return None if network.readout.time_scales() is None else "last-event"


def heads(scales: TimeScales | None, gates: Sequence[float] | None = None) -> list[Head]:
    """Heads as time scales; none where they are not."""
    if scales is None:
        return []
    rates, lives = scales.rates.tolist(), scales.half_lives.tolist()
    return [
        Head(
            head=number,
            rate=rate,
            half_life_seconds=age_seconds(life, scales.age_unit),
            half_life=spell_age(life, scales.age_unit),
            gate=None if gates is None else gates[number - 1],
        )
        for number, (rate, life) in enumerate(zip(rates, lives, strict=True), start=1)
    ]
