"""Users over HTTP: their events are kept, forgotten and found."""

from pathlib import Path

import polars as pl
from tests.serve.conftest import HISTORY, LOG, START, Start, events, train


def test_events_are_forgotten(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], future=2**32)
    before = client.get("/v1/users/u3").json()
    wrong = {"item": "i1", "time": "2031-01-01T00:00:00Z"}
    client.post("/v1/users/u3/events", json={"events": [wrong, {"item": "i2", "time": START + 0.5}]})
    assert client.get("/v1/users/u3").json()["events"] == before["events"] + 2
    address = "/v1/users/u3/events"
    assert client.delete(address, params=wrong).json() == {"removed": 1}
    assert client.delete(address, params=wrong).json() == {"removed": 0}
    assert client.get("/v1/users/u3").json()["history"][-1]["time"] == START  # the whole part of a time counts
    assert client.delete(address, params={"item": "i2", "time": START + 0.5}).json() == {"removed": 1}  # as posted
    client.post(address, json={"events": [wrong]})
    assert client.delete(address).json() == {"removed": 1}
    assert "marsrec_events_removed_total 3.0" in client.get("/metrics").text
    assert client.get("/v1/users/u3").json() == before  # what was saved with the model stays
    client.post("/v1/users/zoe/events", json={"events": [wrong]})
    assert client.delete("/v1/users/zoe/events").json() == {"removed": 1}
    assert client.get("/v1/users/zoe").status_code == 404
    assert client.get("/v1/users?search=zoe").json()["users"] == []


def test_users_are_found(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    client.post("/v1/users/Bob U1/events", json={"events": events(HISTORY)})
    client.post("/v1/users/u12/events", json={"events": events(HISTORY)})
    found = client.get("/v1/users?search=U1&limit=100").json()["users"]
    assert {(user["user"], user["saved"], user["stored"]) for user in found} == {
        ("u1", True, False),
        *((f"u1{digit}", True, digit == 2) for digit in range(10)),
        ("Bob U1", False, True),
    }
    assert found[-1]["user"] == "Bob U1"
    assert len(client.get("/v1/users").json()["users"]) == 20


def test_ids_of_any_kind_come_back_as_they_are(tmp_path: Path, start: Start) -> None:
    log = LOG.with_columns(pl.col("user").str.slice(1).cast(pl.Int64), pl.col("item").str.slice(1).cast(pl.Int64))
    train("mars-t", log).save(tmp_path / "model")
    client = start(tmp_path / "model")
    for item in (7, "7", "007"):
        client.post("/v1/users/3/events", json={"events": [{"item": item, "time": START}]})
    client.post("/v1/users/03/events", json={"events": [{"item": "tea", "time": START}]})
    user = client.get("/v1/users/3").json()
    assert user["user"] == 3
    assert [event["item"] for event in user["history"][-2:]] == [7, "tea"]
    assert user["events"] == 12
    assert isinstance(client.get("/v1/users/3/recommendations").json()["items"][0]["item"], int)
    assert client.get("/v1/users?search=3").json()["users"][0] == {"user": 3, "saved": True, "stored": True}
    for name in ("a/b", "recommendations", "x%y", "日本"):
        answer = client.post(f"/v1/users/{name.replace('%', '%25')}/events", json={"events": events([("7", START)])})
        assert answer.json()["new"] == 1, name
        assert client.get(f"/v1/users/{name.replace('%', '%25')}").json()["user"] == name
