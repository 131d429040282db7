import math

import pytest
import torch

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.metrics import metrics


def naive(ranks: list[float], k: int) -> tuple[float, float, float]:
    hits = [rank for rank in ranks if rank <= k]
    return (
        len(hits) / len(ranks),
        sum(1 / math.log2(1 + rank) for rank in hits) / len(ranks),
        sum(1 / rank for rank in hits) / len(ranks),
    )


def test_equal_a_naive_implementation_with_ties():
    ranks = [1.0, 1.5, 5.0, 5.5, 10.0, 10.5, 20.0, 21.0, 3000.0]
    values = metrics(torch.tensor(ranks), ks=(1, 5, 10, 20))
    assert list(values)[:3] == ["HR@1", "NDCG@1", "MRR@1"]
    for k in (1, 5, 10, 20):
        assert (values[f"HR@{k}"], values[f"NDCG@{k}"], values[f"MRR@{k}"]) == pytest.approx(naive(ranks, k), abs=1e-12)


def test_the_best_and_the_worst():
    assert set(metrics(torch.ones(3)).values()) == {1.0}
    assert set(metrics(torch.full((3,), 21.0)).values()) == {0.0}


def test_arrays_do_as_well():
    assert metrics(torch.tensor([2.0, 30.0]).numpy(), ks=(10,))["HR@10"] == 0.5


def test_what_is_no_rank_is_named():
    with pytest.raises(DataError, match="no ranks to average"):
        metrics(torch.empty(0))
    with pytest.raises(DataError, match=r"rank 0\.5 in row 1"):
        metrics(torch.tensor([1.0, 0.5]))
    with pytest.raises(DataError, match="rank nan in row 0"):
        metrics(torch.tensor([torch.nan]))
    with pytest.raises(SettingsError, match="cut-offs k are at least 1; found 0"):
        metrics(torch.ones(1), ks=(10, 0))
