"""TiSASRec's encoder against its equations, written out pair by pair."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from marsrec.data.batches import Batch
from marsrec.errors import SettingsError
from marsrec.nn.encoders.time_interval import TimeInterval, TimeIntervalSettings, time_intervals

DAY = 86400
# Ties at the start, in the middle and everywhere; gaps that shrink later; more than the span; one event alone.
HISTORIES = [
    [5 * DAY, 5 * DAY, 8 * DAY, 9 * DAY + 1, 9 * DAY + 1, 9 * DAY + 7, 40 * DAY],
    [0, 100, 150, 175, 200],
    [7, 7, 7],
    [3],
]


def small(**settings: object) -> TimeInterval:
    torch.manual_seed(0)
    values = {"inner": 10, "span": 6, **settings}
    encoder = TimeIntervalSettings.model_validate(values).build(dim=4, length=12).double().eval()
    for parameter in encoder.parameters():  # so large that everything tells, layer norms and biases included
        torch.nn.init.normal_(parameter, std=0.7)
    return encoder


def batch_of(histories: list[list[int]], length: int | None = None) -> tuple[Tensor, Batch]:
    """Embedded items, which follow from the place in the history, and the batch."""
    length = length or max(map(len, histories))
    times = torch.tensor([row + row[-1:] * (length - len(row)) for row in histories])
    lengths = torch.tensor([len(row) for row in histories])
    zeros = torch.zeros_like(times)
    batch = Batch(zeros, times, lengths, zeros, zeros)
    place = torch.arange(length)[:, None] * 4 + torch.arange(4) + 1.0
    embedded = torch.sin(place.double() ** 2) * batch.inside[..., None]
    return embedded, batch


def naive_intervals(times: list[int], span: int, scale: str) -> list[list[int]]:
    rows = []
    for i in range(len(times)):
        gaps = [b - a for a, b in pairwise(times[: i + 1]) if b > a]
        gap = min(gaps, default=1) if scale == "user" else 1
        rows.append([min((2 * (times[i] - times[j]) + gap) // (2 * gap), span) for j in range(i + 1)])
    return rows


def naive_encoder(encoder: TimeInterval, sequence: Tensor, intervals: list[list[int]]) -> Tensor:
    x = encoder.norm(sequence)
    pK, pV = encoder.position_keys.weight, encoder.position_values.weight
    rK, rV = encoder.interval_keys.weight, encoder.interval_values.weight
    for block in encoder.blocks:
        rows = []
        for i in range(len(x)):
            q, heads = block.qkv(x[i])[:4], []
            for head in (slice(0, 2), slice(2, 4)):
                scores, values = [], []
                for j in range(i + 1):
                    _, k, v = block.qkv(x[j]).split(4)
                    r = intervals[i][j]
                    scores.append(q[head] @ (k + pK[j] + rK[r])[head] / math.sqrt(2))
                    values.append((v + pV[j] + rV[r])[head])
                weights = torch.stack(scores).softmax(0)
                heads.append(sum(a * value for a, value in zip(weights, values, strict=True)))
            y = block.attention_norm(x[i] + block.out(torch.cat(heads)))
            first, _, second = block.feed_forward
            rows.append(block.norm(y + second(F.gelu(first(y)))))
        x = torch.stack(rows)
    return x


@pytest.mark.parametrize("scale", ["user", "raw"])
@torch.no_grad()
def test_encoder_equals_its_equations(scale):
    encoder = small(scale=scale)
    embedded, batch = batch_of(HISTORIES)
    states = encoder(embedded, batch)
    for row, times in enumerate(HISTORIES):
        expected = naive_encoder(encoder, embedded[row, : len(times)], naive_intervals(times, 6, scale))
        torch.testing.assert_close(states[row, : len(times)], expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("scale", ["user", "raw"])
@pytest.mark.parametrize("unit", [1, 10**9])  # nanoseconds of today have no exact float
def test_intervals_are_exact(scale, unit):
    for times in HISTORIES:
        late = [1_700_000_000 * unit + (time * unit + (time % 3)) for time in times]
        found = time_intervals(torch.tensor([late]), 50, scale)[0]
        for i, row in enumerate(naive_intervals(late, 50, scale)):
            assert found[i, : i + 1].tolist() == row
            assert not found[i, i + 1 :].any()


def test_the_users_own_pace_decides_and_not_the_unit():
    times = torch.tensor([[0, 100, 150, 175, 200]])
    assert time_intervals(times, 256)[0, -1].tolist() == [8, 4, 2, 1, 0]
    assert torch.equal(time_intervals(times * DAY, 256), time_intervals(times, 256))
    assert time_intervals(times * DAY, 256, "raw")[0, -1].tolist() == [256, 256, 256, 256, 0]


@torch.no_grad()
def test_neither_padding_nor_other_rows_change_a_state():
    encoder = small()
    together = encoder(*batch_of(HISTORIES, 12))
    for row, times in enumerate(HISTORIES):
        alone = encoder(*batch_of([times]))[0]
        torch.testing.assert_close(together[row, : len(times)], alone, rtol=1e-9, atol=1e-9)


@torch.no_grad()
def test_a_state_sees_its_own_event_and_earlier_ones_only():
    encoder = small()
    embedded, batch = batch_of(HISTORIES[:1])
    states = encoder(embedded, batch)
    for event in range(1, 7):
        prefix = encoder(*batch_of([HISTORIES[0][:event]]))  # what training on prefixes would see
        torch.testing.assert_close(states[:, :event], prefix, rtol=1e-9, atol=1e-9)
        item, times = embedded.clone(), batch.times.clone()
        item[:, event, 0] += 1
        times[:, event:] += 2  # a shorter or longer gap
        for changed in (encoder(item, batch), encoder(embedded, replace(batch, times=times))):
            torch.testing.assert_close(changed[:, :event], states[:, :event], rtol=1e-12, atol=1e-12)
    assert (encoder(item, batch)[:, 6] - states[:, 6]).abs().max() > 1e-4
    times = batch.times.clone()
    times[:, 3:] += 2 * DAY
    assert (encoder(embedded, replace(batch, times=times))[:, 3] - states[:, 3]).abs().max() > 1e-4


def test_gradients_reach_every_parameter():
    encoder = small().train()  # with dropout
    embedded, batch = batch_of(HISTORIES * 8)
    encoder(embedded, batch).square().sum().backward()
    assert all(parameter.grad.abs().sum() > 0 for parameter in encoder.parameters())


def test_size_and_start():
    encoder = TimeIntervalSettings().build(dim=64, length=50)
    block = 4 * (64 * 64 + 64) + 2 * 64 * 256 + 256 + 64 + 4 * 64
    assert sum(parameter.numel() for parameter in encoder.parameters()) == 2 * (50 + 257) * 64 + 2 * 64 + 2 * block
    assert abs(encoder.interval_keys.weight.std().item() - 0.02) < 0.001
    with pytest.raises(SettingsError, match="attention_heads"):
        TimeIntervalSettings(attention_heads=3).build(64, 50)
