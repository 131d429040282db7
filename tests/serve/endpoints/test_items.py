"""Items over HTTP."""

from pathlib import Path

import numpy as np
import polars as pl
from tests.serve.conftest import LOG, START, Start, train

from marsrec import Recommender
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.data.titles import with_titles


def test_items_are_found(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    items = client.get("/v1/items?search=i1&limit=3").json()["items"]
    counts = LOG["item"].value_counts().filter(pl.col("item").str.starts_with("i1"))
    assert len(items) == 3
    assert items[0]["count"] <= counts["count"].max()
    assert [item["count"] for item in items] == sorted((item["count"] for item in items), reverse=True)
    assert client.get("/v1/items?search=nothing").json() == {"items": []}
    similar = client.get("/v1/items/i3/similar?k=4").json()["items"]
    expected = Recommender.load(folders["mars-t"]).similar_items("i3", k=4)
    assert [row["item"] for row in similar] == expected["item"].to_list()
    np.testing.assert_allclose([row["similarity"] for row in similar], expected["similarity"], atol=1e-5)


def test_titles_and_categories_are_shown_and_searched(start: Start, tmp_path: Path) -> None:
    histories = Histories.from_log(read_log(LOG))
    titles = {"item": ["i3", "i4"], "title": ["Green tea", "Milk"], "category": [None, "Dairy"]}
    named, _ = with_titles(histories, pl.DataFrame(titles))
    train("mars-t", named).save(tmp_path / "named")
    client = start(tmp_path / "named")
    assert client.get("/v1/items", params={"search": "tea"}).json()["items"][0]["title"] == "Green tea"
    (milk,) = client.get("/v1/items", params={"search": "dairy"}).json()["items"]
    assert (milk["item"], milk["title"], milk["category"]) == ("i4", "Milk", "Dairy")
    assert client.get("/v1/model").json()["model"]["categories"] == ["Dairy"]
    history = [{"item": "i3", "time": START}, {"item": "i9", "time": START + 60}]
    client.post("/v1/users/ann/events", json={"events": [*history, {"item": "beer", "time": START}]})
    shown = [(event["item"], event["title"]) for event in client.get("/v1/users/ann").json()["history"]]
    assert shown == [("i3", "Green tea"), ("beer", None), ("i9", None)]
    body = {"history": history, "k": 20, "explain": True, "mask_seen": False}
    (answer,) = client.post("/v1/recommend", json=body).json()["results"]
    assert {entry["item"]: (entry["title"], entry["category"]) for entry in answer["items"]}["i4"] == ("Milk", "Dairy")
    assert [event["title"] for event in answer["reading"]["events"]] == ["Green tea", None]
    similar = client.get("/v1/items/i9/similar", params={"k": 19}).json()["items"]
    assert {entry["item"]: entry["title"] for entry in similar}["i3"] == "Green tea"
