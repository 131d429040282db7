"""Scores of own items: their features against a naive reference."""

import math

import torch

from marsrec.data.batches import Batch
from marsrec.nn.repeats import AGES, HOURS, SELDOM, SINCE, Repeats

HOUR = 3600


def naive(events: list[tuple[int, int]], now: int) -> dict[int, list[float]]:
    """Features of the items of one history of (item, time), each written out."""
    found = {}
    for item in sorted({item for item, _ in events}):
        places = [place for place, (other, _) in enumerate(events) if other == item]
        row = [0.0] * (SINCE + AGES + 2)
        row[min(int(math.log2(1 + len(events) - 1 - places[-1])), SINCE - 1)] = 1
        hours = min((now - events[place][1]) / HOUR for place in places)
        row[SINCE + min(int(math.log2(1 + hours) / 1.5), AGES - 1)] = 1
        row[-2] = math.log(len(places))
        apart = [(now - events[place][1]) / HOUR % 24 for place in places]
        alike = sum(math.exp(-(min(hours, 24 - hours) ** 2) / HOURS) for hours in apart)
        row[-1] = math.log((SELDOM + alike) / SELDOM)
        found[item] = row
    return found


def histories() -> list[list[tuple[int, int]]]:
    generator = torch.Generator().manual_seed(0)
    rows = []
    for length in (1, 2, 7, 40):
        items = torch.randint(1, 9, (length,), generator=generator).tolist()
        gaps = torch.randint(0, 60 * HOUR, (length,), generator=generator)
        rows.append(list(zip(items, gaps.cumsum(0).tolist(), strict=True)))
    return rows


def batch_of(rows: list[list[tuple[int, int]]]) -> Batch:
    longest = max(map(len, rows))
    items, times = torch.zeros(len(rows), longest, dtype=torch.long), torch.zeros(len(rows), longest, dtype=torch.long)
    for row, events in enumerate(rows):
        for place in range(longest):
            item, time = events[min(place, len(events) - 1)]
            items[row, place], times[row, place] = item if place < len(events) else 0, time
    return Batch(items, times, torch.tensor(list(map(len, rows))), torch.zeros_like(items), times)


def test_features_are_those_written_out() -> None:
    rows = histories()
    batch = batch_of(rows)
    now = batch.times[:, -1] + 5 * HOUR
    offsets, codes, features = Repeats(float(HOUR)).features(batch, now)
    for row, events in enumerate(rows):
        own = slice(int(offsets[row]), int(offsets[row + 1]))
        expected = naive(events, int(now[row]))
        assert codes[own].tolist() == list(expected)
        torch.testing.assert_close(features[own], torch.tensor(list(expected.values())))


def test_scores_are_features_times_weights_and_none_before_a_fit() -> None:
    batch = batch_of(histories())
    repeats = Repeats(float(HOUR))
    _, _, values = repeats(batch, batch.times[:, -1])
    assert values.eq(0).all()
    repeats.weights.copy_(torch.arange(len(repeats.weights)))
    _, codes, features = repeats.features(batch, batch.times[:, -1])
    assert codes.shape == (len(features),)
    torch.testing.assert_close(repeats(batch, batch.times[:, -1])[2], features @ repeats.weights)
