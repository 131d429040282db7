"""Intervals and p-values against plain resampling of users, and against cases with a known answer."""

import numpy as np
import pytest

from marsrec.errors import DataError
from marsrec.evaluation import significance
from marsrec.evaluation.metrics import hr, ndcg
from marsrec.evaluation.significance import holm, paired

RNG = np.random.default_rng(5)
RANKS = RNG.integers(1, 40, size=3000).astype(float)


def test_interval_and_p_agree_with_plain_resampling(monkeypatch: pytest.MonkeyPatch) -> None:
    first = ndcg(RANKS, 10)
    second = ndcg(np.clip(RANKS + RNG.integers(-6, 8, size=len(RANKS)), 1, None), 10)
    ways = [paired(first, second)]
    monkeypatch.setattr(significance, "MANY", 0)  # users are drawn one by one
    ways.append(paired(first, second))
    assert ways[0].mean == ways[1].mean
    assert ways[0].low != ways[1].low
    difference = first - second
    rng = np.random.default_rng(1)
    resampled = [rng.choice(difference, len(difference)).mean() for _ in range(4000)]
    flipped = [(difference * rng.choice([-1, 1], len(difference))).mean() for _ in range(4000)]
    for found in ways:
        assert found.mean == pytest.approx(difference.mean())
        assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=6e-4)
        assert found.p == pytest.approx((np.abs(flipped) >= abs(difference.mean())).mean(), abs=0.02)


def test_a_model_does_not_differ_from_itself() -> None:
    same = paired(hr(RANKS, 10), hr(RANKS, 10))
    assert (same.mean, same.low, same.high, same.p) == (0.0, 0.0, 0.0, 1.0)


def test_false_alarms_are_as_rare_as_the_level_says() -> None:
    alarms = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first, second = (rng.random(300) < 0.3 for _ in range(2))
        alarms += paired(first.astype(float), second.astype(float), draws=1000).p < 0.05
    assert alarms <= 20  # 10 are expected; more than 20 has a chance of 1 in 1,000


def test_unequal_users_are_refused() -> None:
    with pytest.raises(DataError, match="3 users against 2"):
        paired(np.ones(3), np.ones(2))


def test_targets_of_a_user_are_drawn_and_flipped_together() -> None:
    """Ten users with forty equal targets each are worth no more than ten users."""
    rng = np.random.default_rng(2)
    users = np.arange(10)
    first, second = rng.random(10), rng.random(10)
    alone = paired(first, second)
    many = paired(np.repeat(first, 40), np.repeat(second, 40), users=np.repeat(users, 40))
    assert (many.mean, many.low, many.high, many.p) == pytest.approx((alone.mean, alone.low, alone.high, alone.p))
    assert paired(np.repeat(first, 40), np.repeat(second, 40)).p < many.p / 10


def test_users_with_several_targets_against_plain_resampling() -> None:
    rng = np.random.default_rng(3)
    users = np.sort(rng.integers(0, 300, 2000))
    taste = rng.standard_normal(300)
    difference = 0.02 + 0.3 * taste[users] + rng.standard_normal(2000)
    shuffled = rng.permutation(2000)  # the order of the targets does not matter
    found = paired(difference[shuffled], np.zeros(2000), users=users[shuffled])
    totals, targets = np.bincount(users, difference), np.bincount(users)
    drawn = rng.integers(0, len(totals), (4000, len(totals)))
    resampled = totals[drawn].sum(1) / targets[drawn].sum(1)
    assert found.mean == pytest.approx(difference.mean())
    assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=5e-3)
    flipped = (totals * rng.choice([-1, 1], (4000, len(totals)))).sum(1) / 2000
    assert found.p == pytest.approx((np.abs(flipped) >= abs(difference.mean())).mean(), abs=0.03)


def test_holm_steps_down() -> None:
    assert holm([]) == []
    assert holm([0.2]) == [0.2]
    assert holm([0.5, 0.001, 0.4, 0.02]) == pytest.approx([0.8, 0.004, 0.8, 0.06])
