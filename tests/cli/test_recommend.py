"""Commands that use a saved model: recommend and explain."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.cli.calls import QUICK, call, outputs
from tests.synthetic import cyclic_log

from marsrec import Recommender, TrainingSettings


def test_fit_recommend_explain_evaluate(saved: Path) -> None:
    table = json.loads(call("recommend", saved, "--user", "u3", "--k", "4", "--json"))
    assert [row["rank"] for row in table] == [1, 2, 3, 4]
    explained = json.loads(call("explain", saved, "--user", "u3", "--json"))
    assert explained["item"] == table[0]["item"]
    shown = call("explain", saved, "--user", "u3").splitlines()
    assert shown[0] == explained["sentence"]
    assert any(line.split() == ["score", f"{explained['score']:+.4f}"] for line in shown)
    total = explained["last_state"] + sum(term["share"] for term in explained["terms"])
    assert total == pytest.approx(explained["score"], abs=1e-5)
    assert explained["score"] == pytest.approx(table[0]["score"], abs=1e-5)
    measured = json.loads(call("evaluate", saved, "--json"))
    kept = json.loads((saved / "metrics.json").read_text())
    assert measured["metrics"] == pytest.approx(kept["test"])
    assert sum(row["targets"] for row in measured["by_history_length"]) == 30
    assert pl.read_csv(saved / "training" / "curve.csv").height == 3
    assert not (saved / "training" / "training.safetensors").exists()
    assert not saved.with_name("mars.training").exists()


def test_recommend_for_histories_and_everybody(log: Path, saved: Path, tmp_path: Path) -> None:
    events = ["--event", "i3@2020-09-13T12:00", "--event", "i4@2020-09-14"]
    rows = json.loads(call("recommend", saved, *events, "--k", "2", "--json"))
    assert len(rows) == 2
    usual, masked, kept = (
        json.loads(call("recommend", saved, "--user", "u3", *seen, "--json"))
        for seen in ([], ["--mask-seen"], ["--keep-seen"])
    )
    assert usual == masked
    assert len(masked) < len(kept)
    call("recommend", saved, "--all-users", "--k", "3", "--out", tmp_path / "all.parquet")
    assert pl.read_parquet(tmp_path / "all.parquet").height == 90
    rows = json.loads(call("recommend", saved, "--history", log, "--k", "1", "--json"))
    assert len(rows) == 30


def test_columns_named_for_fit_are_known_to_recommend(tmp_path: Path) -> None:
    shop = tmp_path / "shop.csv"
    renamed = cyclic_log(users=30, events=10, items=15).rename({"user": "who", "item": "what", "time": "at_time"})
    renamed.write_csv(shop)
    columns = ["--user", "who", "--item", "what", "--time", "at_time"]
    call("fit", shop, "--model", "sasrec", "--out", tmp_path / "model", *columns, *QUICK)
    rows = json.loads(call("recommend", tmp_path / "model", "--history", shop, "--k", "1", "--json"))
    assert len(rows) == 30


def test_models_fitted_on_pandas_answer_on_the_command_line(tmp_path: Path) -> None:
    training = TrainingSettings(epochs=1)
    recommender = Recommender("mars-t", options={"dim": 8}, training=training)
    recommender.fit(cyclic_log(users=30, events=10, items=15).to_pandas(), progress=False).save(tmp_path / "model")
    best = json.loads(call("recommend", tmp_path / "model", "--user", "u1", "--k", "1", "--json"))[0]["item"]
    explained = json.loads(call("explain", tmp_path / "model", "--user", "u1", "--json"))
    assert explained["item"] == best
    assert best in call("recommend", tmp_path / "model", "--user", "u1", "--k", "1")


def test_raw_ids_are_printed_as_they_are(tmp_path: Path) -> None:
    frame = cyclic_log(users=5, events=8, items=6)
    frame = frame.with_columns(user=4000 + pl.col("user").str.slice(1).cast(pl.Int64), item=pl.format("2{}000", "item"))
    frame = frame.with_columns(item=pl.col("item").str.replace("i", "").cast(pl.Int64))
    frame.write_parquet(tmp_path / "log.parquet")
    call("fit", tmp_path / "log.parquet", "--out", tmp_path / "m", *QUICK)
    printed = call("recommend", tmp_path / "m", "--user", "4003", "--keep-seen")
    assert "4003" in printed
    assert "25000" in printed
    assert "Nothing is left" in outputs("recommend", tmp_path / "m", "--user", "4003")[1]


def test_ranks_are_written(saved: Path, tmp_path: Path) -> None:
    call("evaluate", saved, "--ranks", tmp_path / "ranks.parquet", "--mask-seen")
    ranks = pl.read_parquet(tmp_path / "ranks.parquet")
    assert ranks.columns == ["user", "target", "history_length", "rank"]
    assert ranks.height == 30
    assert ranks["history_length"].unique().to_list() == [9]
