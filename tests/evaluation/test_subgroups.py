import polars as pl
import pytest
import torch

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.metrics import metrics
from marsrec.evaluation.subgroups import DENSE_BUCKETS, SPARSE_BUCKETS, by_history_length, write_ranks


@pytest.mark.parametrize(
    ("buckets", "lengths", "labels"),
    [
        (SPARSE_BUCKETS, [1, 5, 6, 15, 16, 49, 50, 9999], ["1-5", "6-15", "16-49", ">=50"]),
        (DENSE_BUCKETS, [1, 30, 31, 90, 91, 200, 201, 9999], ["1-30", "31-90", "91-200", ">=201"]),
    ],
)
def test_the_papers_buckets(buckets, lengths, labels):
    ranks = torch.tensor([1.0, 30.0, 2.0, 4.5, 11.0, 12.0, 1.0, 1.0])
    table = by_history_length(ranks, torch.tensor(lengths), buckets, ks=(10, 20))
    assert table["bucket"].to_list() == labels
    assert table["users"].to_list() == [2, 2, 2, 2]
    assert table["HR@10"].to_list() == [0.5, 1, 0, 1]
    for index, row in enumerate(table.drop("bucket", "users").iter_rows(named=True)):
        assert row == metrics(ranks[2 * index : 2 * index + 2], ks=(10, 20))


def test_a_bucket_without_users_is_null_and_a_bucket_of_one_length_has_its_name():
    table = by_history_length(torch.ones(1), torch.tensor([9]), buckets=(1, 2, 4), ks=(5,))
    assert table.rows() == [("1", 0, None, None, None), ("2-3", 0, None, None, None), (">=4", 1, 1.0, 1.0, 1.0)]


def test_users_outside_of_the_buckets_are_not_dropped_silently():
    with pytest.raises(DataError, match="history of 0 events in row 1, but the first bucket starts at 1"):
        by_history_length(torch.ones(2), torch.tensor([1, 0]))
    with pytest.raises(DataError, match="2 ranks but 1 lengths"):
        by_history_length(torch.ones(2), torch.tensor([1]))
    with pytest.raises(SettingsError, match="ascending"):
        by_history_length(torch.ones(2), torch.tensor([1, 0]), buckets=(6, 1))


def test_ranks_are_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "run" / "ranks.parquet"
    users, targets = pl.Series([7, 9]), pl.Series(["tea", "milk"])
    write_ranks(path, users, targets, torch.tensor([3, 4]), torch.tensor([1.0, 2.5], dtype=torch.float64))
    with pytest.raises(DataError, match=r"ranks.parquet: columns of unequal length .*'rank': 1"):
        write_ranks(path, users, targets, torch.tensor([3, 4]), torch.ones(1))
    table = pl.read_parquet(path)
    assert table.schema == {"user": pl.Int64, "target": pl.String, "history_length": pl.Int64, "rank": pl.Float64}
    assert table.rows() == [(7, "tea", 3, 1.0), (9, "milk", 4, 2.5)]
    assert [file.name for file in path.parent.iterdir()] == ["ranks.parquet"]
