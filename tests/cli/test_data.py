"""Commands about data."""

import json
from pathlib import Path

import polars as pl
from tests.cli.calls import QUICK, call, refused
from tests.synthetic import cyclic_log


def test_prepare_filters_and_writes(log: Path, tmp_path: Path) -> None:
    statistics = json.loads(call("prepare", log, "--out", tmp_path / "prepared", "--json"))
    assert (statistics["users"], statistics["items"], statistics["interactions"]) == (30, 15, 300)
    assert json.loads(call("prepare", tmp_path / "prepared", "--json"))["fingerprint"] == statistics["fingerprint"]
    assert "already prepared" in refused("prepare", tmp_path / "prepared", "--min-user-events", "3")


def test_prepare_ml_1m(public_data: Path) -> None:
    path = public_data / "ml-1m_raw.parquet"
    found = json.loads(call("prepare", path, "--min-user-events", "5", "--min-item-events", "5", "--json"))
    assert (found["users"], found["items"], found["interactions"]) == (6_040, 3_416, 999_611)


def test_titles_stand_beside_items(tmp_path: Path) -> None:
    log = cyclic_log(users=9, events=8, items=6)
    log.write_csv(tmp_path / "log.csv")
    named = log.select(pl.col("item").unique()).with_columns(title=pl.format("Title of {}", "item"))
    named.filter(pl.col("item") != "i2").write_csv(tmp_path / "titles.csv")
    call("prepare", tmp_path / "log.csv", "--titles", tmp_path / "titles.csv", "--out", tmp_path / "shop")
    call("fit", tmp_path / "shop", "--model", "mars-t", "--out", tmp_path / "model", *QUICK)
    explained = json.loads(call("explain", tmp_path / "model", "--user", "u1", "--item", "i3", "--json"))
    assert explained["title"] == "Title of i3"
    titles = {term["item"]: term["title"] for term in explained["terms"]}
    assert titles == {item: None if item == "i2" else f"Title of {item}" for item in log["item"].unique()}
    assert "Title of i4" in call("explain", tmp_path / "model", "--user", "u1", "--item", "i2")
    (best,) = json.loads(call("recommend", tmp_path / "model", "--user", "u1", "--k", "1", "--keep-seen", "--json"))
    assert best["title"] == titles[best["item"]]


def test_data_sets_tell_how_each_is_had() -> None:
    access = {row["name"]: row["access"] for row in json.loads(call("datasets", "--json"))}
    assert (access["beauty"], access["yelp"], access["games-2018"]) == ("download", "own copy", "own copy")
    assert "own copy" in call("datasets")
