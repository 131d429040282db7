from functools import cache

import numpy as np
import pytest
from tests.data.test_hawkes import codes, last_rows, ndcg, oracle_scores

from marsrec.data.filters import FilterSettings
from marsrec.data.hawkes import HawkesTruth
from marsrec.data.log import Log
from marsrec.data.shop import ARTICLES, KINDS, MAKERS, articles, shop
from marsrec.data.source import open_data

KERNELS = ("minutes", "day", "weeks")


@cache
def drawn() -> tuple[Log, HawkesTruth]:
    return shop()


def test_there_are_a_few_hundred_articles_of_some_twenty_kinds_with_different_titles() -> None:
    table = articles()
    assert len(table) == len(ARTICLES) == 12 * len(KINDS) == 276
    assert table["title"].n_unique() == len(table)
    assert table["category"].unique().sort().to_list() == sorted(MAKERS)


def test_every_kind_that_follows_another_is_one_of_the_kinds() -> None:
    named = {
        name
        for kind in KINDS
        for listed in (kind.minutes, kind.day, kind.weeks)
        if listed
        for name in listed.split(", ")
    }
    assert named <= {kind.name for kind in KINDS}


@pytest.mark.parametrize("kernel", range(3))
def test_what_follows_is_of_the_kinds_that_the_kernel_brings(kernel: int) -> None:
    log, truth = drawn()
    items = codes(log, "item")
    children = np.flatnonzero(truth.kernels == kernel)
    assert len(children) > 1000
    for child in children[:1000]:
        (_, parent), (_, bought) = ARTICLES[items[truth.parents[child]]], ARTICLES[items[child]]
        listed = getattr(parent, KERNELS[kernel]) or parent.name
        assert bought.name in listed.split(", ")


def test_what_is_used_up_is_bought_again_within_weeks_and_only_then() -> None:
    _, truth = drawn()
    same = truth.successors == np.arange(len(ARTICLES))[:, None]
    used_up = [not kind.weeks for _, kind in ARTICLES]
    assert not same[:2].any()
    np.testing.assert_array_equal(same[2, :, 0], used_up)  # before all others
    assert not same[2, :, 1:].any()
    assert (np.diff(np.sort(truth.successors), axis=-1) > 0).all()


def test_a_taste_knows_six_articles_of_two_departments_and_no_department_is_left_out() -> None:
    _, truth = drawn()
    departments = np.array([kind.department for _, kind in ARTICLES])
    for taste in truth.background:
        _, counts = np.unique(departments[taste > 0], return_counts=True)
        assert counts.tolist() == [6, 6]
    np.testing.assert_allclose(truth.background.sum(axis=1), 1)
    assert set(departments[truth.background.any(axis=0)]) == set(MAKERS)


def test_seeds_differ_in_what_shoppers_do_and_not_in_the_law() -> None:
    (log, truth), (other_log, other) = shop(users=20), shop(users=20, seed=1)
    assert not log.frame.equals(other_log.frame)
    np.testing.assert_array_equal(truth.successors, other.successors)
    np.testing.assert_array_equal(truth.background, other.background)


def test_what_somebody_who_knows_the_law_reaches() -> None:
    log, truth = drawn()
    targets = codes(log, "item")[last_rows(log)]
    popularity = np.tile(np.bincount(codes(log, "item"), minlength=len(ARTICLES)), (len(targets), 1))
    assert 100 * ndcg(truth.chances(log), targets) == pytest.approx(50.56, abs=0.005)
    assert 100 * ndcg(oracle_scores(log, truth), targets) == pytest.approx(38.05, abs=0.005)
    assert 100 * ndcg(popularity, targets) < 6


def test_the_shop_opens_by_its_name_with_titles() -> None:
    source = open_data("shop", filters=FilterSettings(min_item_events=300))
    assert (source.name, source.synthetic) == ("shop", True)
    ids = source.histories.item_ids
    known = {item: rest for item, *rest in articles().iter_rows()}
    assert len(ids) < 263
    assert ids.titles is not None
    assert ids.categories is not None
    assert [*map(list, zip(ids.titles, ids.categories, strict=True))] == [known[item] for item in ids.ids]
