"""What an inspection says is what the model does, against plain loops and the model's own functions."""

import json
import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import pytest
import torch
from tests.synthetic import cyclic_log, histories_of

from marsrec import Recommender, TrainingSettings
from marsrec.data.batches import contexts, gather
from marsrec.data.histories import Histories
from marsrec.data.log import Log
from marsrec.data.moments import spell_age
from marsrec.errors import DataError
from marsrec.lab import attention
from marsrec.lab.attention import attention_entropy
from marsrec.lab.inspection import LEVELS, Inspection, inspect, read, resolution, write
from marsrec.lab.page import Picture, Table
from marsrec.lab.pages.inspection import section
from marsrec.lab.pages.inspection_pictures import draw_decay, draw_spread
from marsrec.nn.mars import SIGMA
from marsrec.nn.readouts.last import Last

OPTIONS = {"dim": 8, "length": 6, "encoder.dropout": 0.0}


def fitted(model: str, readout: str | None = None, **options: object) -> Recommender:
    training = TrainingSettings(epochs=1, targets_per_batch=64)
    recommender = Recommender(model, readout=readout, options=OPTIONS | options, training=training)
    recommender.fit(cyclic_log(users=30, events=9, items=12), progress=False)
    torch.manual_seed(0)
    with torch.no_grad():  # far from where training starts, so that heads and events differ
        for parameter in recommender.network.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
        recommender.network.items.weight[0] = 0
    return recommender


def small_chunks(B: int, H: int, L: int) -> Iterator[tuple[int, slice, slice]]:
    """Two positions and three rows at a time: the borders between chunks count too."""
    for position, row, head in product(range(0, L, 2), range(0, B, 3), range(H)):
        yield head, slice(row, min(row + 3, B)), slice(position, min(position + 2, L))


@pytest.fixture(scope="module")
def mars() -> Recommender:
    return fitted("mars-t")


@pytest.fixture(scope="module")
def inspected(mars: Recommender) -> Inspection:
    return inspect(mars)


def test_attention_entropy_is_that_of_a_plain_loop(mars: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "chunks", small_chunks)
    model, split = mars.network, mars.split()
    assert model is not None
    found = attention_entropy(mars)
    assert len(found) == 2
    entropies: list[list[float]] = [[], []]
    for row in contexts(split.histories, split.test, 6):
        batch = gather(split.histories, row[None])
        with torch.no_grad():
            x = model.encoder.norm(model.items(batch.items) + model.encoder.positions.weight[: len(batch.items[0])])
            for layer, block in enumerate(model.encoder.blocks):
                width = 8 // block.heads
                query, key, _ = block.qkv(x)[0].split(8, dim=-1)
                for i in range(1, len(query)):
                    of_heads = []
                    for head in range(block.heads):
                        part = slice(head * width, (head + 1) * width)
                        logits = [float(query[i, part] @ key[j, part]) / math.sqrt(width) for j in range(i + 1)]
                        mass = sum(math.exp(logit) for logit in logits)
                        weights = [math.exp(logit) / mass for logit in logits]
                        of_heads.append(-sum(w * math.log(w) for w in weights) / math.log(i + 1))
                    entropies[layer].append(sum(of_heads) / len(of_heads))
                x = block(x)
    for layer in range(2):
        assert found[layer].mean == pytest.approx(np.mean(entropies[layer]), rel=1e-5)
        assert found[layer].std == pytest.approx(np.std(entropies[layer]), rel=1e-3)
        assert 0 < found[layer].mean < 1


def test_even_attention_has_entropy_one_and_hooks_are_removed() -> None:
    recommender = fitted("sasrec")
    for block in recommender.network.encoder.blocks:
        with torch.no_grad():
            block.qkv.weight[:8] = 0  # queries
            block.qkv.bias[:8] = 0
    for layer in inspect(recommender).attention:
        assert layer.mean == pytest.approx(1, abs=1e-6)
        assert layer.std == pytest.approx(0, abs=1e-6)
    assert not any(module._forward_hooks for module in recommender.network.modules())


def test_rates_half_lives_and_gate_are_the_operators(mars: Recommender, inspected: Inspection) -> None:
    model, split, decay = mars.network, mars.split(), inspected.decay
    assert model is not None
    assert decay is not None
    operator = model.readout.operator
    batch = gather(split.histories, contexts(split.histories, split.test, 6))
    with torch.no_grad():
        embedded, states = model.encode(batch)
        reading = model.readout.read(states, embedded, batch)
        base = operator.base_rates()
    lives = operator.half_lives(reading.rates[:, 0])
    for k, head in enumerate(decay.heads):
        assert head.base_half_life == pytest.approx(operator.half_lives(base)[k].item(), rel=1e-4)
        assert head.rates.quantiles == pytest.approx(np.quantile(reading.rates[:, 0, k], LEVELS), rel=1e-4)
        assert head.half_lives.quantiles == pytest.approx(np.quantile(lives[:, k], LEVELS), rel=1e-3)
        assert head.gate.quantiles == pytest.approx(np.quantile(reading.gate[:, 0, k], LEVELS), rel=1e-3)
        assert sum(head.half_lives.counts) == sum(head.gate.counts) == inspected.histories == 30
        # At its half-life an event weighs half.
        assert decay.weight(np.array([head.base_half_life]), head.base_rate) == pytest.approx(0.5)
    assert sum(head.mean_gate for head in decay.heads) == pytest.approx(1)
    weights = reading.weights.double().numpy()
    entropy = lambda p: -(p * np.log(p, where=p > 0, out=np.zeros_like(p))).sum(-1)  # noqa: E731
    pairs = [(a, b) for a in range(4) for b in range(4) if a != b]
    divergences = [
        entropy((weights[:, a] + weights[:, b]) / 2) - (entropy(weights[:, a]) + entropy(weights[:, b])) / 2
        for a, b in pairs
    ]
    assert decay.divergence == pytest.approx(np.mean(divergences), rel=1e-4)


def test_example_users(mars: Recommender, inspected: Inspection) -> None:
    assert inspected.examples
    evaluation = mars.evaluate("test")
    users = mars.user_ids().to_list()
    for example in inspected.examples:
        for scored in [*example.top, example.following]:
            assert scored.last_state + sum(scored.heads) == pytest.approx(scored.score, abs=1e-4)
        first = example.top[0]
        shares = [event.share for event in example.events if event.share is not None]
        assert sum(shares) + first.last_state == pytest.approx(first.score, abs=1e-4)
        assert np.sum([event.weights for event in example.events], axis=0) == pytest.approx(1, abs=1e-4)
        assert sum(example.gate) == pytest.approx(1, abs=1e-4)
        assert example.events[-1].age == 0
        assert example.events[0].age == (example.events[-1].time - example.events[0].time) / 3600
        assert [event.age for event in example.events] == sorted((e.age for e in example.events), reverse=True)
        assert [scored.rank for scored in example.top] == [1, 2, 3]
        assert example.following.rank == evaluation.ranks[users.index(example.user)]
        if example.following.rank <= 3:
            assert example.top[int(example.following.rank) - 1] == example.following
    assert inspected == inspect(mars)  # nothing is drawn at random


def test_the_request_clock_counts_from_the_target() -> None:
    recommender = fitted("mars-t", **{"readout.clock": "request"})
    example = inspect(recommender).examples[0]
    split = recommender.split()
    user = recommender.user_ids().to_list().index(example.user)
    requested = split.histories.times[split.test.positions[user]]
    assert example.events[-1].age == pytest.approx((requested - example.events[-1].time) / 3600)


def test_ages_in_events_where_time_is_not_seen() -> None:
    found = inspect(fitted("mars-t", **{"readout.real_time": False}))
    assert found.decay is not None
    assert found.decay.unit == "events"
    assert [event.age for event in found.examples[0].events] == [5, 4, 3, 2, 1, 0]
    assert heads_table(found).rows[0][1].endswith(" events")
    assert "†" not in str(heads_table(found.model_copy(update={"resolution": 1e6})))  # hours are not seen


def test_a_rate_of_nearly_nothing_is_a_finite_half_life(tmp_path: Path) -> None:
    recommender = fitted("mars-t")
    with torch.no_grad():
        recommender.network.readout.operator.raw_rates.fill_(-20.0)
    found = inspect(recommender)
    write(found, tmp_path / "x.json")
    assert read(tmp_path / "x.json") == found
    text = " ".join(part for part in section("x", found).parts if isinstance(part, str))
    assert "over 100 years (head 1, 2, 3, 4)" in text


def test_an_inspection_is_read_as_it_was_written(inspected: Inspection, tmp_path: Path) -> None:
    path = tmp_path / "inspection.json"
    write(inspected, path)
    assert read(path) == inspected
    assert path.stat().st_size < 200_000
    path.write_text('{"model": 3}')
    with pytest.raises(DataError, match=r"inspection.json: not an inspection .* Inspect the model anew"):
        read(path)


@pytest.mark.parametrize(("seconds", "finest", "least"), [(5, 1, 1), (5, 86_400, 60), (90, 1, 60)])
def test_the_axis_of_ages_begins_where_the_fastest_head_looks(
    inspected: Inspection, seconds: int, finest: int, least: int
) -> None:
    assert inspected.decay is not None
    decay = inspected.decay.model_copy(deep=True)
    for head in decay.heads:
        head.half_lives.quantiles[:] = [seconds / 3600] * 5
    axis = draw_decay(decay, finest / 3600).axes[0]
    assert axis.get_xlim()[0] == pytest.approx(least / 3600)
    plt.close("all")


def test_pictures_show_the_gate_and_the_shares(inspected: Inspection) -> None:
    pictures = {part.name: part for part in section("mars", inspected).parts if isinstance(part, Picture)}
    users = [f"mars-user-{number}" for number in range(1, len(inspected.examples) + 1)]
    assert list(pictures) == ["mars-decay", "mars-spread", *users]
    assert inspected.decay is not None
    decay, gate = pictures["mars-decay"].draw().axes
    marked = {text.get_text(): text.xy for text in decay.texts}
    lives = {f"head {k}": head.half_lives.quantiles[2] for k, head in enumerate(inspected.decay.heads, start=1)}
    low, high = decay.get_xlim()
    assert marked == {name: (life, 0.5) for name, life in lives.items() if low < life < high}
    assert marked
    bars = gate.patches
    assert [bar.get_width() for bar in bars] == [head.mean_gate for head in inspected.decay.heads]
    assert len({bar.get_hatch() for bar in bars}) == 4  # told apart without colours
    for example, name in zip(inspected.examples, users, strict=True):
        axis = pictures[name].draw().axes[1]
        shown = example.top + [example.following] * (example.following not in example.top)
        widths = np.reshape([bar.get_width() for bar in axis.patches], (len(shown), -1))
        assert widths.sum(1) == pytest.approx([scored.score for scored in shown], abs=1e-4)
        labels = [label.get_text() for label in axis.get_yticklabels()]
        assert f"{example.following.item}\nrank {example.following.rank:g}, taken next" in labels
    plt.close("all")


def test_the_spread_shows_modulation_between_its_bounds(mars: Recommender, inspected: Inspection) -> None:
    assert inspected.decay is not None
    model, split = mars.network, mars.split()
    batch = gather(split.histories, contexts(split.histories, split.test, 6))
    with torch.no_grad():
        embedded, states = model.encode(batch)
        rates = model.readout.read(states, embedded, batch).rates[:, 0]
        factors = (rates / model.readout.operator.base_rates()).numpy()
    modulation, gate = draw_spread(inspected.decay).axes
    bounds = [line.get_ydata()[0] for line in modulation.lines if line.get_linestyle() == "--"]
    assert bounds == [math.exp(-SIGMA), math.exp(SIGMA)]
    low, high = modulation.get_ylim()
    assert low < bounds[0] < bounds[1] < high
    marks = [line for line in modulation.lines if line.get_linestyle() != "--"]
    assert [mark.get_ydata()[0] for mark in marks] == pytest.approx(np.median(factors, axis=0), rel=1e-4)
    assert len({mark.get_marker() for mark in marks}) == 4  # told apart without colours
    ends = [part.get_segments()[0][:, 1] for part in modulation.collections]  # all, thin and thick lines of each head
    for k, quantiles in enumerate(np.quantile(factors, [0, 1, *LEVELS], axis=0).T):
        least, most, low, start, _, end, high = quantiles
        expected = [[least, most], [low, high], [start, end]]
        assert np.array(ends[3 * k : 3 * k + 3]) == pytest.approx(np.array(expected), rel=1e-4)
    assert np.ptp(factors, axis=0).min() > 0.01  # there is something to see
    assert [mark.get_ydata()[0] for mark in gate.lines] == [head.gate.quantiles[2] for head in inspected.decay.heads]
    assert "no unit" in modulation.get_ylabel()
    plt.close("all")


def test_without_modulation_and_with_one_head_all_users_are_at_one() -> None:
    found = inspect(fitted("mars-t", **{"readout.modulation": False, "readout.heads": 1}))
    assert found.decay is not None
    for axis in draw_spread(found.decay).axes:
        assert len(axis.collections) == 2  # no range and no histogram
        for part in axis.collections:
            assert part.get_segments()[0][:, 1] == pytest.approx([1, 1], rel=1e-5)
        assert axis.get_ylim()[1] < 2
    plt.close("all")


def test_the_resolution_is_the_shortest_time_between_events_of_a_user() -> None:
    days = [0, 1, 3, 3, 6]
    times = [86_400 * day for day in days] + [86_400 * (6 + day) + 60 for day in days]  # the next user, a minute later
    frame = pl.DataFrame({"user": [1] * 5 + [2] * 5, "item": [*range(5)] * 2, "time": times})
    assert resolution(histories_of(frame)) == 24
    milliseconds = Histories.from_log(Log(pl.DataFrame({"user": [1, 1], "item": [1, 2], "time": [0, 7_200_000]}), "ms"))
    assert resolution(milliseconds) == 2
    assert resolution(histories_of(pl.DataFrame({"user": [1, 1, 2], "item": [1, 2, 1], "time": [5, 5, 9]}))) is None


def test_half_lives_below_the_resolution_are_marked(inspected: Inspection, tmp_path: Path) -> None:
    assert inspected.decay is not None
    lives = [head.half_lives.quantiles[2] for head in inspected.decay.heads]
    low, high = sorted(lives)[1:3]
    assert low < high
    between = math.sqrt(low * high)
    coarse = inspected.model_copy(update={"resolution": between})
    below = [k for k, life in enumerate(lives, start=1) if life < between]
    assert len(below) == 2
    table = heads_table(coarse)
    assert [k for k, row in enumerate(table.rows, start=1) if row[2].endswith(" †")] == below
    assert f"† Below the data's resolution ({spell_age(between, 'hours')}): two events of a user" in table.caption
    rates = [inspected.decay.heads[k - 1].rates.quantiles[2] for k in below]
    left = max((1 + between) ** -rate for rate in rates)
    assert f"In head {below[0]}, {below[1]} an event of that age weighs at most {left:.2g} of a new" in table.caption
    labels = next(part for part in section("x", coarse).parts if isinstance(part, Picture)).draw().legends[0].texts
    drawn = f"below the data's resolution ({spell_age(between, 'hours')})"
    assert (drawn in [label.get_text() for label in labels]) == (between > 1 / 60)
    fine = inspected.model_copy(update={"resolution": min(head.half_lives.quantiles[0] for head in coarse.decay.heads)})
    for silent in (fine, inspected.model_copy(update={"resolution": None})):
        assert "†" not in str(heads_table(silent))
    plt.close("all")


def test_an_inspection_without_a_resolution_is_read(inspected: Inspection, tmp_path: Path) -> None:
    old = json.loads(inspected.model_dump_json(exclude={"resolution"}))
    (tmp_path / "old.json").write_text(json.dumps(old))
    assert read(tmp_path / "old.json") == inspected.model_copy(update={"resolution": None})


def heads_table(inspected: Inspection) -> Table:
    parts = section("x", inspected).parts
    return next(part for part in parts if isinstance(part, Table) and part.columns[0] == "head")


def test_mars_on_an_encoder_without_attention_shows_its_rates() -> None:
    found = inspect(fitted("gru4rec", readout="mars"))
    assert not found.attention
    assert found.decay is not None
    assert len(found.decay.heads) == 4


def test_nothing_to_inspect_is_said() -> None:
    found = inspect(fitted("gru4rec"))
    assert (found.attention, found.decay, found.examples) == ([], None, [])
    [text] = section("gru", found).parts
    assert (
        text == "gru4rec has neither the transformer encoder nor a readout with time scales: there is nothing to show."
    )


def test_heads_that_never_fade_and_are_the_same_for_all_have_a_page() -> None:
    found = inspect(fitted("hawkes-t", **{"readout.heads": 2}))
    parts = section("hawkes", found).parts
    assert "Modulation can multiply" not in " ".join(part.caption for part in parts if isinstance(part, Table))
    tables = [part for part in parts if isinstance(part, Table)]
    assert any(row[0] == "1" and "over 100 years" in row[1] for table in tables for row in table.rows)
    for picture in (part for part in parts if isinstance(part, Picture)):
        picture.draw().canvas.draw()
        plt.close("all")


def test_what_is_lost_without_past_events(mars: Recommender, inspected: Inspection) -> None:
    assert inspected.decay is not None
    removed = inspected.decay.removed
    assert removed is not None
    complete = mars.evaluate().metrics
    assert removed.complete == pytest.approx({name: complete[name] for name in removed.complete})
    mars.network.readout, kept = Last(), mars.network.readout
    rest = mars.evaluate().metrics
    mars.network.readout = kept
    assert removed.rest == pytest.approx({name: rest[name] for name in removed.rest})
    assert removed.rest != removed.complete
    assert -1 <= removed.cosine.quantiles[0] <= removed.cosine.quantiles[-1] <= 1
    assert "Without what past events add" in str(section("mars", inspected).parts)
