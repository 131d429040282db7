"""Commands that measure saved models."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from tests.cli.calls import call, refused
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings

LOG = pl.concat([cyclic_log(users=30, events=20, items=15)[:200], cyclic_log(users=30, events=10, items=15)[100:]])
"""Ten users with twenty events, the last of which is a repeat, and twenty with ten."""


def fitted(log: pl.DataFrame = LOG, epochs: int = 1) -> Recommender:
    training = TrainingSettings(epochs=epochs, learning_rate=0.05, targets_per_batch=64)
    options = {"dim": 8, "encoder.dropout": 0.0, "length": 8}
    return Recommender("gru4rec", options=options, training=training).fit(log, progress=False)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """One that learned that items follow each other, and one that hardly did."""
    folder = tmp_path_factory.mktemp("models")
    for name, epochs in (("good", 12), ("poor", 1)):
        fitted(epochs=epochs).save(folder / name)
    return folder / "good", folder / "poor"


def test_any_metric_is_measured(models: tuple[Path, Path]) -> None:
    wanted = ["--metric", "coverage@3", "--metric", "hr", "--metric", "repeats", "-k", "2"]
    found = json.loads(call("evaluate", models[0], *wanted, "--json"))
    recommender = Recommender.load(models[0])
    assert list(found["metrics"]) == ["HR@2", "repeats@2", "coverage@3"]
    expected = recommender.evaluate(metrics=["coverage@3", "hr", "repeats"], ks=(2,))
    assert found["metrics"] == expected.metrics
    buckets = {row["group"]: row for row in found["by_history_length"]}
    assert {name: row["targets"] for name, row in buckets.items()} == {"1-5": 0, "6-15": 20, "16-49": 10, ">=50": 0}
    assert buckets["6-15"] == {"group": "6-15", "targets": 20, **expected[expected.lengths == 9].metrics}
    shown = call("evaluate", models[0], *wanted)
    assert f"{100 * found['metrics']['HR@2']:.2f}" in shown
    assert f"{found['metrics']['coverage@3']:.4g}" in shown


def test_items_of_the_past_are_kept_or_masked_by_one_pair_of_options(models: tuple[Path, Path]) -> None:
    usual, kept, masked = (
        json.loads(call("evaluate", models[0], *seen, "--json")) for seen in ([], ["--keep-seen"], ["--mask-seen"])
    )
    assert usual == kept
    assert (kept["mask_seen"], masked["mask_seen"]) == (False, True)


def test_nothing_new_is_shown_unless_wanted(models: tuple[Path, Path]) -> None:
    lines = [line.strip() for line in call("evaluate", models[0]).splitlines()]
    title = " ".join(lines[: next(n for n, line in enumerate(lines) if line.startswith("┏"))])
    assert title == f"{models[0]} (× 100, test, all items ranked, history not masked)"
    (heading,) = (line for line in lines if "HR@5" in line)
    assert [name.strip() for name in heading.strip("┃ ").split("┃")][-3:] == ["HR@20", "NDCG@20", "MRR@20"]
    assert "By number of earlier events" in lines
    assert not any("coverage" in line for line in lines)


def test_a_metric_of_ones_own(models: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "shop_metrics.py").write_text("def top(lists):\n    return lists.items[:, 0] == lists.targets\n")
    monkeypatch.chdir(tmp_path)
    found = json.loads(call("evaluate", models[0], "--metric", "shop_metrics:top@1", "--metric", "HR@1", "--json"))
    assert found["metrics"]["top@1"] == found["metrics"]["HR@1"] > 0.5


def test_unknown_metrics_and_groups_are_named(models: tuple[Path, Path]) -> None:
    assert "unknown metric 'precision'. Known: HR, NDCG" in refused("evaluate", models[0], "--metric", "precision@5")
    assert "unknown group 'age'. Known: length, time, repeats" in refused("compare", *models, "--group", "age")


def test_compare_says_which_model_is_better(models: tuple[Path, Path]) -> None:
    good, poor = models
    found = json.loads(call("compare", good, poor, "--json"))
    assert (found["a"], found["b"], found["part"]) == (str(good), str(poor), "test")
    hits, *_ = found["rows"]
    assert (hits["grouping"], hits["targets"], hits["metric"]) == ("all", 30, "HR@10")
    for row in found["rows"]:
        for side, folder in (("a", good), ("b", poor)):
            if row["grouping"] == "all":
                assert row[side] == pytest.approx(
                    json.loads((folder / "metrics.json").read_text())["test"][row["metric"]]
                )
    ndcg = found["rows"][1]
    assert ndcg["p"] < ndcg["p_holm"] < 0.05
    assert 0 < ndcg["low"] < ndcg["difference"] < ndcg["high"]
    shown = call("compare", good, poor, "--metric", "NDCG", "--metric", "Gini", "--group", "repeats", "-k", "10")
    assert f"{100 * ndcg['difference']:+.2f}" in shown
    assert "By whether the user had the target before" in shown
    assert "By number of earlier events" not in shown


def test_a_model_is_equal_to_itself(models: tuple[Path, Path]) -> None:
    rows = json.loads(call("compare", models[0], models[0], "--mask-seen", "--part", "valid", "--json"))["rows"]
    assert {row["difference"] for row in rows} == {0}
    assert {row["p_holm"] for row in rows} == {1}


def test_models_of_different_data_are_not_compared(models: tuple[Path, Path], tmp_path: Path) -> None:
    other = fitted(LOG.filter(pl.col("user") != "u0"))
    other.save(tmp_path / "other")
    assert "different data (users 30 against 29, " in refused("compare", models[0], tmp_path / "other")
    other.save(tmp_path / "bare", histories=False)
    assert "saved without its users' histories" in refused("compare", models[0], tmp_path / "bare")


def test_ranks_are_written(models: tuple[Path, Path], tmp_path: Path) -> None:
    found = json.loads(call("evaluate", models[0], "--ranks", tmp_path / "ranks.parquet", "--json"))
    ranks = pl.read_parquet(tmp_path / "ranks.parquet")
    assert ranks.height == 30
    assert np.mean(ranks["rank"].to_numpy() <= 5) == found["metrics"]["HR@5"]
