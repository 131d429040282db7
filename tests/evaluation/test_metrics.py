"""Every metric against plain loops over random lists, and against cases with a known answer."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from marsrec.data.histories import Vocabulary
from marsrec.evaluation import metrics
from marsrec.evaluation.lists import Lists
from marsrec.evaluation.metrics import coverage, diversity, gini, hr, mrr, ndcg, novelty, popularity, repeats


@st.composite
def random_lists(draw: st.DrawFn) -> Lists:
    """A few lists over a small catalog, some of them short or empty."""
    n_items, rows, k = draw(st.integers(1, 8)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    items = np.zeros((rows, k), dtype=np.int64)
    for row in items:
        there = rng.integers(0, min(n_items, k) + 1)
        row[:there] = rng.permutation(n_items)[:there] + 1
    counts = rng.integers(0, 6, n_items + 1)
    counts[1] += 1  # something was trained on
    vectors = rng.standard_normal((n_items + 1, 3)).astype(np.float32)
    vectors[rng.random(n_items + 1) < 0.2] = 0
    return Lists(
        items=items,
        targets=rng.integers(1, n_items + 1, rows),
        repeats=rng.random((rows, k)) < 0.5,
        counts=counts,
        vectors=vectors,
        item_ids=Vocabulary(pl.Series(range(n_items))),
    )


def full(row: np.ndarray) -> list[int]:
    return [int(item) for item in row if item]


def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


@given(ranks=st.lists(st.integers(2, 60).map(lambda twice: twice / 2), min_size=1), k=st.integers(1, 30))
def test_metrics_of_ranks_equal_a_naive_implementation_with_ties(ranks: list[float], k: int) -> None:
    found = np.array(ranks)
    assert hr(found, k).tolist() == [float(rank <= k) for rank in ranks]
    assert ndcg(found, k) == pytest.approx([1 / math.log2(1 + rank) if rank <= k else 0 for rank in ranks], abs=1e-12)
    assert mrr(found, k) == pytest.approx([1 / rank if rank <= k else 0 for rank in ranks], abs=1e-12)


@given(random_lists())
def test_coverage_counts_the_items_that_anybody_gets(lists: Lists) -> None:
    assert coverage(lists) == len({item for row in lists.items for item in full(row)}) / lists.n_items


@given(random_lists())
def test_gini_equals_the_mean_absolute_difference_of_all_pairs(lists: Lists) -> None:
    """Its textbook definition, and not the formula over sorted shares."""
    often = [sum(item in full(row) for row in lists.items) for item in range(1, lists.n_items + 1)]
    pairs = sum(abs(one - other) for one in often for other in often)
    n = lists.n_items
    expected = pairs / (2 * (n - 1) * sum(often)) if n > 1 and sum(often) else 0.0
    assert gini(lists) == pytest.approx(expected)


@given(random_lists())
def test_means_over_lists_equal_a_naive_implementation(lists: Lists) -> None:
    counts, total = lists.counts, sum(lists.counts[1:])
    surprise = [-math.log2(max(count, 1) / total) for count in counts]
    places = list(enumerate(lists.items))
    assert popularity(lists) == pytest.approx([mean([counts[i] for i in full(row)]) for _, row in places])
    assert novelty(lists) == pytest.approx([mean([surprise[i] for i in full(row)]) for _, row in places])
    assert repeats(lists) == pytest.approx([mean(list(lists.repeats[n, : len(full(row))])) for n, row in places])


@given(random_lists())
def test_diversity_equals_a_naive_implementation(lists: Lists) -> None:
    def distance(one: int, other: int) -> float:
        first, second = lists.vectors[one].astype(float), lists.vectors[other].astype(float)
        norms = np.linalg.norm(first) * np.linalg.norm(second)
        return 1 - float(first @ second / norms) if norms else 1.0

    expected = [mean([distance(*pair) for pair in combinations(full(row), 2)]) for row in lists.items]
    assert diversity(lists) == pytest.approx(expected, abs=1e-5)


def test_extremes() -> None:
    lists = Lists.example()
    same = replace(lists, items=np.array([[2], [2]]), repeats=np.ones((2, 1), dtype=bool))
    assert (coverage(same), gini(same)) == (0.25, 1.0)
    assert (repeats(same).tolist(), diversity(same).tolist()) == ([1.0, 1.0], [0.0, 0.0])
    even = replace(lists, items=np.array([[1, 2], [4, 3]]))
    assert (coverage(even), gini(even)) == (1.0, 0.0)
    # Item 4 was never trained on: as surprising as one event in sixteen.
    assert novelty(even).tolist() == [1.5, 3.0]
    nothing = replace(lists, items=np.zeros((2, 2), dtype=np.int64))
    assert (coverage(nothing), gini(nothing), novelty(nothing).tolist()) == (0.0, 0.0, [0.0, 0.0])


def test_diversity_takes_other_vectors_and_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = Lists.example()
    assert diversity(lists, vectors=-lists.vectors[::-1]).tolist() == pytest.approx([1.0, 0.0])
    assert diversity(lists, vectors=np.ones((5, 2))).tolist() == pytest.approx([0.0, 0.0])
    monkeypatch.setattr(metrics, "BLOCK", 1)
    assert diversity(lists).tolist() == [1.0, 0.0]
