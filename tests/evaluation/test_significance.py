"""Intervals and p-values against plain resampling of users, and against cases with a known answer."""

import numpy as np
import pytest

from marsrec.errors import DataError
from marsrec.evaluation.metrics import metrics
from marsrec.evaluation.significance import gains, paired

RNG = np.random.default_rng(5)
RANKS = RNG.integers(1, 40, size=3000).astype(float)


@pytest.mark.parametrize("metric", ["HR@10", "NDCG@10", "MRR@10"])
def test_gains_average_to_the_metric(metric: str) -> None:
    assert gains(RANKS, metric).mean() == pytest.approx(metrics(RANKS, (10,))[metric])


def test_interval_and_p_agree_with_plain_resampling() -> None:
    first = gains(RANKS, "NDCG@10")
    second = gains(np.clip(RANKS + RNG.integers(-6, 8, size=len(RANKS)), 1, None), "NDCG@10")
    found = paired(first, second)
    difference = first - second
    rng = np.random.default_rng(1)
    resampled = [rng.choice(difference, len(difference)).mean() for _ in range(4000)]
    assert found.mean == pytest.approx(difference.mean())
    assert (found.low, found.high) == pytest.approx(np.quantile(resampled, [0.025, 0.975]), abs=4e-4)
    flipped = [(difference * rng.choice([-1, 1], len(difference))).mean() for _ in range(4000)]
    assert found.p == pytest.approx((np.abs(flipped) >= abs(difference.mean())).mean(), abs=0.02)


def test_a_model_does_not_differ_from_itself() -> None:
    same = paired(gains(RANKS, "HR@10"), gains(RANKS, "HR@10"))
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
