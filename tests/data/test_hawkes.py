from functools import cache

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from pydantic import ValidationError

from marsrec.data.hawkes import START, Assortment, HawkesSettings, HawkesTruth, hawkes
from marsrec.data.log import Log
from marsrec.errors import SettingsError


@cache
def large() -> tuple[Log, HawkesTruth]:
    return hawkes(HawkesSettings(users=3000, half_lives=(0.25, 8.0, 240.0), weights=(0.4, 0.3, 0.3), branching=0.8))


def codes(log: Log, column: str) -> NDArray[np.int64]:
    return log.frame[column].str.slice(1).cast(pl.Int64).to_numpy()


def last_rows(log: Log) -> NDArray[np.int64]:
    users = codes(log, "user")
    return np.flatnonzero(np.append(users[1:] != users[:-1], True))


def ndcg(scores: NDArray[np.float64], targets: NDArray[np.int64]) -> float:
    wanted = scores[np.arange(len(targets)), targets][:, None]
    ranks = (scores > wanted).sum(axis=1) + ((scores == wanted).sum(axis=1) - 1) / 2
    return float(np.where(ranks < 10, 1 / np.log2(ranks + 2), 0).mean())


WAITS = np.geomspace(1e-4, 1e6, 400)[:, None]  # hours until the next event, where the oracle's integrand is taken


def oracle_scores(log: Log, truth: HawkesTruth) -> NDArray[np.float64]:
    """Score all items as each user's last event, by one who knows the law and the events before, but not when it is.

    Proportional to the probabilities, averaged over all times when the last event could happen.
    """
    users, items, last = codes(log, "user"), codes(log, "item"), last_rows(log)
    hours = log.frame["time"].to_numpy() / 3600
    past = np.delete(np.arange(len(users)), last)
    users, items, ages = users[past], items[past], (hours[last - 1][users] - hours)[past]

    alive = np.exp(-ages[:, None] * truth.rates)  # (events, K)
    strengths = truth.branching * truth.user_weights * truth.rates  # (users, K)
    total = np.zeros_like(strengths)
    np.add.at(total, users, alive)
    decays = np.exp(-WAITS * truth.rates)  # (waits, K)
    # Probability that nothing happens during each wait: (users, waits).
    silence = np.exp(-truth.background_rates[:, None] * WAITS.T - (strengths * total) @ ((1 - decays) / truth.rates).T)
    steps = np.gradient(WAITS, axis=0)
    scores = truth.background_rates[:, None] * (silence @ steps) * truth.background[truth.tastes]
    chances = alive * (strengths * (silence @ (decays * steps)))[users]
    for kernel, successors in enumerate(truth.successors):
        children = chances[:, kernel, None] * truth.successor_probabilities
        np.add.at(scores, (users[:, None], successors[items]), children)
    return scores


def test_times_are_whole_seconds_from_2020_on_and_sorted_within_users() -> None:
    log, _ = large()
    assert log.unit == "s"
    assert log.frame.schema == {"user": pl.String, "item": pl.String, "time": pl.Int64}
    assert START <= log.frame["time"].min() < START + 30 * 86400  # type: ignore[operator]
    assert log.frame.select((pl.col("time").diff().over("user").fill_null(0) >= 0).all()).item()
    assert (np.diff(codes(log, "user")) >= 0).all()


def test_a_parent_is_an_earlier_event_of_the_same_user_and_leads_to_the_child() -> None:
    log, truth = large()
    children = np.flatnonzero(truth.parents >= 0)
    parents, users, items = truth.parents[children], codes(log, "user"), codes(log, "item")
    assert (parents < children).all()
    assert (users[parents] == users[children]).all()
    assert (truth.successors[truth.kernels[children], items[parents]] == items[children][:, None]).any(axis=1).all()
    assert ((truth.kernels >= 0) == (truth.parents >= 0)).all()


def test_background_items_follow_the_users_taste() -> None:
    log, truth = large()
    background = truth.parents < 0
    users, items = codes(log, "user")[background], codes(log, "item")[background]
    assert (truth.background[truth.tastes[users], items] > 0).all()
    counts = np.bincount(items[truth.tastes[users] == 0], minlength=truth.background.shape[1])
    np.testing.assert_allclose(counts / counts.sum(), truth.background[0], atol=0.03)


def test_successors_come_as_often_as_the_law_says() -> None:
    log, truth = large()
    children = np.flatnonzero(truth.parents >= 0)
    items = codes(log, "item")
    listed = truth.successors[truth.kernels[children], items[truth.parents[children]]]
    rank = (listed == items[children][:, None]).argmax(axis=1)
    np.testing.assert_allclose(np.bincount(rank) / len(rank), truth.successor_probabilities, atol=0.01)
    assert (truth.successors == truth.successors[0]).all()  # at all kernels
    assert (truth.successors[0] != np.arange(truth.successors.shape[1])[:, None]).all()


def test_rates_and_branching_ratio_can_be_recovered() -> None:
    """Maximum likelihood of a kernel's rate and weight when parents are known but histories end.

    An event that can be watched for T hours has on average n·w·(1 - exp(-βT)) children by the kernel.
    """
    log, truth = large()
    users, hours = codes(log, "user"), log.frame["time"].to_numpy() / 3600
    watched = hours[last_rows(log)][users] - hours
    children = np.flatnonzero(truth.parents >= 0)
    delays = hours[children] - hours[truth.parents[children]]
    rates, offspring = [], []
    for kernel, true_rate in enumerate(truth.rates):
        mine = truth.kernels[children] == kernel
        grid = true_rate * np.linspace(0.7, 1.3, 121)
        strength = truth.user_weights[users, kernel]
        exposure = np.array([(strength * -np.expm1(-rate * watched)).sum() for rate in grid])
        likelihood = mine.sum() * np.log(grid / exposure) - grid * delays[mine].sum()
        rates.append(grid[likelihood.argmax()])
        offspring.append(mine.sum() / exposure[likelihood.argmax()])
    np.testing.assert_allclose(rates, truth.rates, rtol=0.05)
    np.testing.assert_allclose(offspring, truth.branching, rtol=0.05)


def test_users_differ_in_their_mixture_and_the_population_has_the_weights_asked_for() -> None:
    _, truth = large()
    np.testing.assert_allclose(truth.user_weights.sum(axis=1), 1)
    np.testing.assert_allclose(truth.user_weights.mean(axis=0), truth.weights, atol=0.02)
    assert truth.user_weights.std(axis=0).min() > 0.05


def test_histories_are_as_long_as_asked_for() -> None:
    log, _ = hawkes(HawkesSettings(users=2000, min_events=7, mean_events=20))
    lengths = log.frame.group_by("user").len()["len"]
    assert log.n_users == 2000
    assert lengths.min() == 7
    assert lengths.mean() == pytest.approx(20, rel=0.05)
    assert set(hawkes(HawkesSettings(users=9, min_events=5, mean_events=5))[0].frame.group_by("user").len()["len"]) == {
        5
    }


def test_a_seed_is_a_log() -> None:
    first, again, other = (hawkes(HawkesSettings(users=20, seed=seed)) for seed in (1, 1, 2))
    assert first[0].frame.equals(again[0].frame)
    assert (first[1].parents == again[1].parents).all()
    assert not first[0].frame.equals(other[0].frame)


def test_without_branching_all_is_background() -> None:
    log, truth = hawkes(HawkesSettings(users=50, branching=0))
    assert (truth.parents == -1).all()
    for scores in (oracle_scores(log, truth), truth.chances(log)):
        np.testing.assert_allclose(scores / scores.sum(axis=1, keepdims=True), truth.background[truth.tastes])


def order_scores(log: Log, truth: HawkesTruth, longest: int = 50) -> NDArray[np.float64]:
    """Scores by one who knows the law and how often the parent is how many events back, but no times."""
    items, last = codes(log, "item"), last_rows(log)
    lags = np.where(truth.parents >= 0, np.arange(len(items)) - truth.parents, 0)[last]
    shares = np.bincount(lags[lags <= longest], minlength=longest + 1) / len(lags)  # taken from the targets themselves
    scores = shares[0] * truth.background[truth.tastes]
    lengths = np.diff(last, prepend=-1)
    for lag in range(1, longest + 1):
        users = np.flatnonzero(lengths > lag)
        parents = items[last[users] - lag]
        np.add.at(scores, (users[:, None], truth.successors[0, parents]), shares[lag] * truth.successor_probabilities)
    return scores


def test_the_oracle_gives_probabilities() -> None:
    log, truth = hawkes()
    np.testing.assert_allclose(oracle_scores(log, truth).sum(axis=1), 1, atol=2e-3)


def test_time_decides_in_the_default_log() -> None:
    log, truth = hawkes()
    targets = codes(log, "item")[last_rows(log)]
    counts = np.bincount(codes(log, "item"), minlength=truth.successors.shape[1])
    popularity = ndcg(np.tile(counts, (len(targets), 1)), targets)
    order = ndcg(order_scores(log, truth), targets)
    assert order > 5 * popularity
    assert ndcg(oracle_scores(log, truth), targets) > order
    assert ndcg(truth.chances(log), targets) > 1.25 * order


def test_an_assortment_says_what_leads_where_at_each_kernel() -> None:
    settings = HawkesSettings(users=30, items=4, tastes=1, successors=1)
    after = np.stack([np.full((4, 1), item) for item in (1, 2, 3)])  # one item for each kernel, whatever the parent
    log, truth = hawkes(settings, Assortment(np.array([[1.0, 0, 0, 0]]), after))
    np.testing.assert_array_equal(codes(log, "item"), truth.kernels + 1)
    chances = truth.chances(log)
    hours, last = log.frame["time"].to_numpy() / 3600, last_rows(log)
    ages = hours[last[0]] - hours[: last[0]]
    by_hand = 0.65 * truth.user_weights[0] * truth.rates * np.exp(-ages[:, None] * truth.rates).sum(axis=0)
    np.testing.assert_allclose(chances[0], [truth.background_rates[0], *by_hand])
    with pytest.raises(SettingsError, match=r"the assortment has background \(1, 4\) and successors \(3, 4, 1\)"):
        hawkes(HawkesSettings(users=30, items=5, tastes=1, successors=1), Assortment(truth.background, after))


@pytest.mark.parametrize(
    ("setting", "value"),
    [("users", 0), ("branching", 1.0), ("half_lives", ()), ("half_lives", (1.0, 0.0)), ("successor_ratio", 0.0)],
)
def test_impossible_settings_are_named(setting: str, value: object) -> None:
    with pytest.raises(ValidationError, match=setting):
        HawkesSettings.model_validate({setting: value})


def test_settings_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(SettingsError, match=r"2 half_lives have 3 weights\. Give one for each"):
        HawkesSettings(half_lives=(1.0, 24.0))
    with pytest.raises(SettingsError, match="goes from 9 to 1"):
        HawkesSettings(background_hours=(9.0, 1.0))
    with pytest.raises(SettingsError, match="4 items are too few"):
        HawkesSettings(items=4)
    with pytest.raises(SettingsError, match=r"mean_events \(4\) is below min_events \(5\)"):
        HawkesSettings(mean_events=4)
