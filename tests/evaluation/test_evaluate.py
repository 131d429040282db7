"""Ranks and lists of a model, their metrics, groups of them, and the file of ranks."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.synthetic import histories_of, markov_log

from marsrec.data.splits import Split, leave_one_out
from marsrec.errors import DataError, SettingsError
from marsrec.evaluation import evaluate as module
from marsrec.evaluation.evaluate import Evaluation, evaluate, write_ranks
from marsrec.evaluation.groups import length_buckets
from marsrec.evaluation.lists import Lists
from marsrec.evaluation.measures import figures, measures
from marsrec.models import model_settings
from marsrec.nn.model import SequenceModel

EVERY = ("HR", "coverage", "Gini", "popularity", "novelty", "repeats", "diversity")


@pytest.fixture(scope="module")
def split() -> Split:
    return leave_one_out(histories_of(markov_log(users=50, items=30)))


@pytest.fixture(scope="module")
def model(split: Split) -> SequenceModel:
    torch.manual_seed(0)
    settings = model_settings("gru4rec", options={"dim": 8, "length": 10})
    network = settings.build(split.histories.n_items, "s").eval()
    torch.nn.init.normal_(network.items.weight[1:])
    return network


def past(split: Split, row: int) -> list[int]:
    begin = split.histories.offsets[split.test.users[row]]
    return split.histories.items[begin : split.test.positions[row]].tolist()


def test_nothing_is_recommended_unless_a_metric_looks_at_it(
    split: Split, model: SequenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "top_k", None)
    assert list(evaluate(model, split, 10, ks=(10,)).metrics) == ["HR@10", "NDCG@10", "MRR@10"]


@pytest.mark.parametrize("mask_seen", [False, True])
def test_lists_hold_what_ranks_before_the_target(split: Split, model: SequenceModel, mask_seen: bool) -> None:
    found = evaluate(model, split, 10, metrics=EVERY, mask_seen=mask_seen, ks=(3, 8))
    lists = found.lists
    assert lists is not None
    assert lists.items.shape == (50, 8)
    for row, items in enumerate(lists.items.tolist()):
        before = past(split, row)
        assert lists.repeats[row].tolist() == [item in before for item in items]
        if lists.targets[row] in items:
            assert items.index(lists.targets[row]) + 1 == found.ranks[row]
        elif not (mask_seen and lists.targets[row] in before):  # the target stays ranked, and is not recommended
            assert found.ranks[row] > 8
    assert found.metrics["repeats@8"] == (0 if mask_seen else pytest.approx(lists.repeats.mean()))
    assert lists.counts.tolist() == split.item_counts.tolist()
    # Each cut-off is that of a shorter list.
    for k in (3, 8):
        alone = evaluate(model, split, 10, metrics=EVERY, mask_seen=mask_seen, ks=(k,))
        assert alone.metrics == {name: value for name, value in found.metrics.items() if name.endswith(f"@{k}")}


def test_a_metric_of_ones_own_equals_ours(split: Split, model: SequenceModel) -> None:
    def hits(lists: Lists) -> np.ndarray:
        return (lists.items == lists.targets[:, None]).any(axis=1)

    found = evaluate(model, split, 10, metrics=["HR@5", hits], ks=(5,)).metrics
    assert found["hits@5"] == found["HR@5"] > 0


def test_more_places_than_items(split: Split, model: SequenceModel) -> None:
    found = evaluate(model, split, 10, metrics=["coverage@100", "Gini@100", "diversity@100"])
    assert found.metrics["coverage@100"] == 1.0
    assert found.metrics["Gini@100"] == 0.0


def test_a_part_that_has_no_targets_is_named(split: Split, model: SequenceModel) -> None:
    with pytest.raises(SettingsError, match=r"part='train': .* 'valid' and 'test'"):
        evaluate(model, split, 10, "train")


def test_groups_have_the_metrics_of_their_targets(split: Split, model: SequenceModel) -> None:
    found = evaluate(model, split, 10, metrics=["HR", "coverage", "novelty"], ks=(5,))
    table = found.by_group(length_buckets(found.lengths, buckets=(1, 6, 9, 20)))
    assert table["group"].to_list() == ["1-5", "6-8", "9-19", ">=20"]
    assert table["targets"].sum() == 50
    assert table.row(3) == (">=20", 0, None, None, None)
    for row, (low, high) in zip(table.to_dicts(), [(1, 5), (6, 8), (9, 19)], strict=False):
        inside = (found.lengths >= low) & (found.lengths <= high)
        lists = found.lists[inside]
        assert row["HR@5"] == np.mean(found.ranks[inside] <= 5)
        assert row["coverage@5"] == len(np.unique(lists.items)) / 30
    share = table["targets"] / 50
    assert (table["novelty@5"] * share).sum() == pytest.approx(found.metrics["novelty@5"])


def test_groups_of_ranks_alone() -> None:
    ranks = np.array([1.0, 30.0, 2.0, 4.5, 11.0, 12.0, 1.0, 1.0])
    lengths = np.array([1, 5, 6, 15, 16, 49, 50, 9999])
    chosen = measures(ks=(10, 20))
    table = Evaluation(chosen, ranks, lengths).by_group(length_buckets(lengths))
    assert table["group"].to_list() == ["1-5", "6-15", "16-49", ">=50"]
    assert table["targets"].to_list() == [2, 2, 2, 2]
    assert table["HR@10"].to_list() == [0.5, 1, 0, 1]
    for index, row in enumerate(table.drop("group", "targets").iter_rows(named=True)):
        assert row == figures(chosen, ranks[2 * index : 2 * index + 2])
    only = replace(Evaluation(chosen, ranks, lengths), measures=measures("HR@1"))
    assert only.metrics == {"HR@1": 3 / 8}


def test_ranks_are_written_whole_or_not_at_all(split: Split, tmp_path: Path) -> None:
    path = tmp_path / "run" / "ranks.parquet"
    found = Evaluation([], np.arange(1.0, 51.0), split.test.positions - split.histories.offsets[split.test.users])
    write_ranks(path, found, split.histories, split.test)
    with pytest.raises(DataError, match=r"ranks.parquet: 49 ranks of 50 targets"):
        write_ranks(path, found[1:], split.histories, split.test)
    table = pl.read_parquet(path)
    assert table.schema == {"user": pl.String, "target": pl.String, "history_length": pl.Int64, "rank": pl.Float64}
    last = markov_log(users=50, items=30).group_by("user", maintain_order=True).agg(pl.col("item").last(), pl.len() - 1)
    assert table["user"].to_list() == last["user"].to_list()
    assert table["target"].to_list() == last["item"].to_list()
    assert table["history_length"].to_list() == last["len"].to_list()
    assert table["rank"].to_list() == list(range(1, 51))
    assert [file.name for file in path.parent.iterdir()] == ["ranks.parquet"]
