"""Names, cut-offs and functions of one's own."""

import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.lists import Lists
from marsrec.evaluation.measures import figures, measures
from marsrec.evaluation.metrics import METRICS, diversity, hr

RANKS = np.array([1.0, 1.5, 5.0, 5.5, 10.0, 10.5, 20.0, 21.0, 3000.0])


def median_rank(ranks: np.ndarray) -> float:
    return float(np.median(ranks))


def margin(ranks: np.ndarray, k: int) -> np.ndarray:
    return np.clip(k - ranks, 0, None)


def reach(lists: Lists) -> float:
    return lists.items.shape[1]


def names(*metrics: object, ks: tuple[int, ...] = (5, 10)) -> list[str]:
    return [measure.name for measure in measures(metrics, ks)]


def test_the_usual_metrics_at_the_usual_cut_offs() -> None:
    values = figures(measures(), RANKS)
    assert list(values)[:4] == ["HR@5", "NDCG@5", "MRR@5", "HR@10"]
    assert len(values) == 9
    assert values["HR@10"] == pytest.approx(5 / 9)
    assert set(figures(measures(), np.ones(3)).values()) == {1.0}
    assert set(figures(measures(), np.full(3, 21.0)).values()) == {0.0}


def test_names_with_and_without_a_cut_off() -> None:
    assert names("ndcg@7", "GINI") == ["Gini@5", "Gini@10", "NDCG@7"]
    assert names("HR@5", "HR") == ["HR@5", "HR@10"]  # the same figure once
    assert names(*METRICS, ks=(3,)) == [f"{name}@3" for name in METRICS]


def test_functions_of_ones_own() -> None:
    assert names(median_rank, margin, reach) == ["median_rank", "margin@5", "reach@5", "margin@10", "reach@10"]
    assert names(hr, partial(diversity, vectors=np.ones((5, 1)))) == ["HR@5", "diversity@5", "HR@10", "diversity@10"]
    lists = Lists.example()
    values = figures(measures([median_rank, margin, reach], ks=(1, 2)), np.array([1.0, 4.0]), lists)
    assert values == {"median_rank": 2.5, "margin@1": 0.0, "reach@1": 1.0, "margin@2": 0.5, "reach@2": 2.0}


def test_the_module_of_ones_own_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("LIMIT = 3\ndef first(ranks, k): return ranks == 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    assert names("mine:first@3", "mine:first", ks=(5,)) == ["first@5", "first@3"]
    assert figures(measures("mine:first@3"), RANKS) == {"first@3": pytest.approx(1 / 9)}
    with pytest.raises(SettingsError, match="metric 'mine:second': module 'mine' has no attribute 'second'"):
        measures("mine:second@3")
    with pytest.raises(SettingsError, match="metric 'mine:LIMIT': a int and not a function"):
        measures("mine:LIMIT")
    with pytest.raises(SettingsError, match="No module named 'theirs'"):
        measures("theirs:first")


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            "recall@10",
            r"unknown metric 'recall'. Known: HR, NDCG, MRR, coverage, .*diversity; yours is module:function",
        ),
        ("HR@ten", r"metric 'HR@ten': the cut-off is a whole number, as in HR@10; found 'ten'"),
        ("HR@0", "cut-offs k are at least 1; found 0"),
        (7, "a metric is a name such as 'coverage@10' or a function; found 7"),
        (lambda table: 1.0, "its first parameter is called `ranks` or `lists`.*found table"),
        (lambda: 1.0, "found none"),
    ],
)
def test_what_is_no_metric_is_named(metric: object, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        measures([metric])


def test_nothing_to_measure_is_an_error() -> None:
    with pytest.raises(SettingsError, match=r"none given\. Known: HR"):
        measures([])
    with pytest.raises(SettingsError, match="cut-offs k are at least 1; found 0"):
        measures(ks=(10, 0))
    with pytest.raises(SettingsError, match="two are called <lambda>@5"):
        measures([lambda ranks, k: ranks, lambda ranks, k: -ranks], ks=(5,))


def test_what_is_no_rank_is_named() -> None:
    with pytest.raises(DataError, match="no ranks to average"):
        figures(measures(), [])
    with pytest.raises(DataError, match=r"rank 0\.5 in row 1"):
        figures(measures(), [1.0, 0.5])
    with pytest.raises(DataError, match="rank nan in row 0"):
        figures(measures(), [np.nan])


def test_values_of_the_wrong_shape_and_lists_that_are_not_there() -> None:
    with pytest.raises(DataError, match=r"wrong: gave values \(2,\) for 3 targets"):
        measures([wrong])[0](np.ones(3))
    with pytest.raises(DataError, match="coverage@5: a metric of recommended lists"):
        measures("coverage@5")[0](np.ones(3))
    with pytest.raises(DataError, match="lone: gave nan for target 1; every target has a finite value"):
        measures([lone])[0](np.ones(3))
    with pytest.raises(DataError, match="typical: gave inf"):
        measures([typical])[0](np.ones(3))


def lone(ranks: np.ndarray) -> np.ndarray:
    return np.array([1, np.nan, 2])


def typical(ranks: np.ndarray) -> float:
    return np.inf


def wrong(ranks: np.ndarray) -> np.ndarray:
    return ranks[1:]
