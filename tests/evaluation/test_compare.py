"""Comparisons of models whose ranks are known."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
import pytest
from tests.synthetic import cyclic_log, histories_of, markov_log

from marsrec.data.splits import Part, Split, Targets, global_time, leave_one_out
from marsrec.errors import DataError
from marsrec.evaluation.compare import compare
from marsrec.evaluation.evaluate import Evaluation
from marsrec.evaluation.lists import Lists
from marsrec.evaluation.measures import measures
from marsrec.evaluation.significance import paired

SPLIT = leave_one_out(histories_of(markov_log(users=300, items=40)))
TARGETS = len(SPLIT.test)
RNG = np.random.default_rng(0)
RANKS = RNG.integers(1, 30, TARGETS).astype(float)


@dataclass
class Known:
    """A model whose ranks and lists are given: whatever has a split and an evaluation is compared."""

    ranks: np.ndarray
    its_split: Split = SPLIT
    lists: Lists | None = None

    def split(self) -> Split:
        return self.its_split

    def evaluate(self, part: Part, *, metrics: Sequence[object], mask_seen: bool, ks: Sequence[int]) -> Evaluation:
        targets = self.its_split.targets(part)
        lengths = targets.positions - self.its_split.histories.offsets[targets.users]
        return Evaluation(measures(metrics, ks), self.ranks, lengths, self.lists)


def overall(table: pl.DataFrame) -> list[dict[str, object]]:
    return table.filter(pl.col("grouping") == "all").to_dicts()


def test_a_model_does_not_differ_from_itself() -> None:
    table = compare(Known(RANKS), Known(RANKS), draws=500).table
    assert set(table["difference"]) == set(table["low"]) == set(table["high"]) == {0.0}
    assert set(table["p"]) == set(table["p_holm"]) == {1.0}
    assert [row["metric"] for row in overall(table)] == ["HR@10", "NDCG@10", "MRR@10"]


def test_a_worse_model_is_worse() -> None:
    better, worse = Known(RANKS), Known(RANKS + 5)
    table = compare(better, worse, draws=2000).table
    for row in overall(table):
        values = [measures(row["metric"])[0](model.ranks) for model in (better, worse)]
        assert (row["a"], row["b"]) == pytest.approx(tuple(value.mean() for value in values))
        found = paired(*values, draws=2000)
        assert (row["difference"], row["low"], row["high"]) == pytest.approx((found.mean, found.low, found.high))
        assert row["low"] > 0
        assert row["p"] == found.p < 0.001
        assert row["p"] < row["p_holm"] < 0.05
    turned = compare(worse, better, draws=2000).table
    assert turned["difference"].to_list() == pytest.approx((-table["difference"]).to_list())


def test_groups_divide_the_targets_and_their_mean_is_the_whole() -> None:
    table = compare(Known(RANKS), Known(RNG.permutation(RANKS)), metrics=["NDCG"], ks=(5,), draws=200).table
    whole = overall(table)[0]
    assert set(table["grouping"]) == {"all", "length", "repeats"}  # all targets are later than what came before
    for (grouping,), rows in table.group_by("grouping"):
        assert rows["targets"].sum() == TARGETS, grouping
        for figure in ("a", "b", "difference"):
            assert (rows[figure] * rows["targets"]).sum() / TARGETS == pytest.approx(whole[figure])
    assert not table["targets"].eq(0).any()


def test_metrics_of_all_lists_together_have_no_interval() -> None:
    def known(items: np.ndarray) -> Known:
        example = Lists.example()
        lists = replace(example, items=items, targets=np.ones(TARGETS, int), repeats=np.zeros(items.shape, bool))
        return Known(RANKS, lists=lists)

    one, other = known(np.full((TARGETS, 1), 2)), known(RNG.integers(1, 5, (TARGETS, 1)))
    rows = overall(compare(one, other, metrics=["coverage@1", "popularity@1"], draws=200).table)
    assert rows[0]["difference"] == 0.25 - 1
    assert [rows[0][name] for name in ("low", "high", "p", "p_holm")] == [None] * 4
    assert rows[1]["low"] <= rows[1]["difference"] <= rows[1]["high"]


def test_a_group_of_ones_own() -> None:
    def popular(split: Split, targets: Targets) -> np.ndarray:
        counts = split.item_counts[split.histories.items[targets.positions]]
        return np.where(counts > np.median(counts), "popular", "rare")

    table = compare(Known(RANKS), Known(RANKS), metrics=["HR"], groups=[popular], draws=50).table
    assert table["grouping"].to_list() == ["all", "popular", "popular"]
    assert table["group"].to_list() == ["all", "popular", "rare"]
    assert compare(Known(RANKS), Known(RANKS), groups=["time"], draws=50).table.height == 3  # all are in one group


def test_targets_of_one_user_count_together() -> None:
    split = global_time(SPLIT.histories, 0.5, 0.7)
    ranks = RNG.integers(1, 20, len(split.test)).astype(float)
    one, other = Known(ranks, split), Known(RNG.permutation(ranks), split)
    (row,) = compare(one, other, metrics=["HR"], groups=[], draws=500).table.to_dicts()
    hits = [(model.ranks <= 10).astype(float) for model in (one, other)]
    found = paired(*hits, users=split.test.users, draws=500)
    assert (row["low"], row["high"], row["p"]) == (found.low, found.high, found.p)
    assert found.high - found.low != paired(*hits, draws=500).high - paired(*hits, draws=500).low


def test_a_comparison_prints_its_table() -> None:
    text = repr(compare(Known(RANKS), Known(RANKS + 1), draws=50))
    assert text.startswith("Comparison on test, history not masked; differences are a less b")
    assert text.count("NDCG@10") == compare(Known(RANKS), Known(RANKS), draws=50).table["metric"].eq("NDCG@10").sum()


def test_models_of_other_tests_are_refused() -> None:
    same = Known(RANKS)
    data = leave_one_out(histories_of(cyclic_log(users=300)))
    with pytest.raises(
        DataError, match=r"different data \(.*interactions [\d]+ against 3600.*Fit both on the same log"
    ):
        compare(same, Known(RANKS, data))
    with pytest.raises(DataError, match=r"different splits \(leave-one-out: .* against global-time: .*same split"):
        compare(same, Known(RANKS, global_time(SPLIT.histories)))
    first, second = (Known(RANKS, global_time(SPLIT.histories, *moments)) for moments in ((0.8, 0.9), (0.7, 0.9)))
    with pytest.raises(DataError, match=r"different training events \(global-time: .* against global-time"):
        compare(first, second)
    first, second = (Known(RANKS, global_time(SPLIT.histories, *moments)) for moments in ((0.8, 0.9), (0.8, 0.95)))
    with pytest.raises(DataError, match="different test targets"):
        compare(first, second)
