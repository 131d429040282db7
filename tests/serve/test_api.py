"""What the service answers: the same as the library."""

import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import LOG, START, train

from marsrec import Recommender
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.data.titles import with_titles

Start = Callable[..., TestClient]
HISTORY = [("i3", START), ("i4", START + 3600), ("i5", START + 90_000)]


def events(pairs: list[tuple[str, int]]) -> list[dict[str, object]]:
    return [{"item": item, "time": time} for item, time in pairs]


def assert_same(found: list[dict], expected: pl.DataFrame) -> None:
    assert [row["item"] for row in found] == expected["item"].to_list()
    assert [row["rank"] for row in found] == expected["rank"].to_list()
    np.testing.assert_allclose([row["score"] for row in found], expected["score"], atol=2e-4)


@pytest.mark.parametrize("recipe", ["mars-t", "mars-m", "gru4rec"])
@pytest.mark.filterwarnings("ignore:this model is not on the request clock", "ignore:.*unknown items")
def test_histories_in_the_request(recipe: str, folders: dict[str, Path], start: Start) -> None:
    client, library = start(folders[recipe]), Recommender.load(folders[recipe])
    later = HISTORY[-1][1] + 86_400 * 30
    for options in (
        {},
        {"k": 3},
        {"k": 100, "mask_seen": False},
        {"at": later},
        {"candidates": ["i7", "i8", "i3", "nothing"]},
    ):
        body = client.post("/v1/recommend", json={"history": events(HISTORY), **options}).json()
        assert_same(body["results"][0]["items"], library.recommend(histories=HISTORY, **options))
        assert body["unknown_candidates"] == ("candidates" in options)
    backwards = client.post("/v1/recommend", json={"history": events(HISTORY[::-1])}).json()
    assert_same(backwards["results"][0]["items"], library.recommend(histories=HISTORY))
    as_text = client.post("/v1/recommend", json={"history": [{"item": "i3", "time": "2023-11-14T22:13:20Z"}]}).json()
    assert_same(as_text["results"][0]["items"], library.recommend(histories=HISTORY[:1]))


def test_many_histories_some_without_known_items(folders: dict[str, Path], start: Start) -> None:
    client, library = start(folders["mars-t"]), Recommender.load(folders["mars-t"])
    given = [HISTORY, [], [("what", START)], HISTORY[:1]]
    results = client.post("/v1/recommend", json={"histories": [events(pairs) for pairs in given], "k": 4}).json()[
        "results"
    ]
    assert [result["source"] for result in results] == ["model", "popularity", "popularity", "model"]
    assert [result["unknown_items"] for result in results] == [0, 0, 1, 0]
    for result, history in zip(results, (HISTORY, [], [], HISTORY[:1]), strict=True):
        assert_same(result["items"], library.recommend(histories=history, k=4))


@pytest.mark.parametrize("recipe", ["mars-t", "mars-m", "gru4rec"])
def test_explanations_sum_to_the_score_shown(recipe: str, folders: dict[str, Path], start: Start) -> None:
    client, library = start(folders[recipe]), Recommender.load(folders[recipe])
    client.post("/v1/users/u1/events", json={"events": events(HISTORY)})
    given = client.post("/v1/recommend", json={"history": events(HISTORY), "explain": True, "k": 3}).json()
    stored = client.get("/v1/users/u1/recommendations?explain=true&k=3").json()
    for result in (given["results"][0], stored):
        assert len(result["items"]) == 3
        for row in result["items"]:
            if recipe == "gru4rec":
                assert row["explanation"] is None
                continue
            parts = row["explanation"]
            total = parts["last_state"] + np.sum(parts["shares"]) + np.sum(parts["earlier"])
            assert total == pytest.approx(row["score"], abs=1e-4)
            assert np.shape(parts["shares"]) == (len(result["reading"]["events"]), len(result["reading"]["heads"]))
    if recipe == "gru4rec":
        return
    reading = given["results"][0]["reading"]
    item = given["results"][0]["items"][0]
    expected = library.explain(HISTORY, item["item"])
    terms = expected.terms.sort("event", "head", descending=[True, False])
    np.testing.assert_allclose(np.ravel(item["explanation"]["shares"]), terms["share"], atol=1e-4)
    np.testing.assert_allclose(np.ravel([event["weights"] for event in reading["events"]]), terms["weight"], atol=1e-5)
    assert [head["half_life"] for head in reading["heads"]] == expected.by_head()["half_life"].to_list()
    assert [event["age"] for event in reading["events"]] == ["1 day", "1 day", "0 seconds"]
    assert [event["age_seconds"] for event in reading["events"]] == [90_000, 86_400, 0]


def test_a_long_history_is_listed_in_part_and_still_sums(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-m"])
    long = [(f"i{number % 20}", START + 60 * number) for number in range(250)]
    client.post("/v1/users/ann/events", json={"events": events(long)})
    user = client.get("/v1/users/ann").json()
    assert (user["events"], len(user["history"])) == (250, 200)
    assert (len(user["reading"]["events"]), user["reading"]["earlier"]) == (200, 50)
    told = client.get("/v1/users/ann/recommendations?explain=true&k=1&mask_seen=false").json()["items"][0]
    parts = told["explanation"]
    assert any(parts["earlier"])
    total = parts["last_state"] + np.sum(parts["shares"]) + np.sum(parts["earlier"])
    assert total == pytest.approx(told["score"], abs=1e-4)


@pytest.mark.parametrize("recipe", ["mars-t", "mars-m"])
def test_stored_users_are_answered_as_sessions_of_their_whole_history(
    recipe: str, folders: dict[str, Path], start: Start
) -> None:
    client, library = start(folders[recipe]), Recommender.load(folders[recipe])
    saved = list(LOG.filter(user="u3").select("item", "time").iter_rows())
    assert_same(client.get("/v1/users/u3/recommendations").json()["items"], library.start("u3").recommend())
    posted = client.post("/v1/users/u3/events", json={"events": events([*HISTORY, ("tea", START), saved[2]])})
    assert posted.json() == {"received": 5, "new": 5, "unknown_items": 1}
    again = client.post("/v1/users/u3/events", json={"events": events([HISTORY[1]])})
    assert again.json() == {"received": 1, "new": 0, "unknown_items": 0}
    session = library.start(saved + HISTORY)
    assert_same(client.get("/v1/users/u3/recommendations").json()["items"], session.recommend())
    moments = [START + 90_000, START + 86_400 * 90]
    lists = [client.get(f"/v1/users/u3/recommendations?at={at}&k=3").json() for at in moments]
    for told, at in zip(lists, moments, strict=True):
        assert told["at"] == at
        assert_same(told["items"], session.recommend(k=3, at=at))
    assert lists[0]["items"] != lists[1]["items"]  # the request clock hears the moment
    user = client.get("/v1/users/u3").json()
    assert user["events"] == len(saved) + 4  # what was saved with the model is not doubled
    assert [event["item"] for event in user["history"][-4:]] == ["i3", "tea", "i4", "i5"]
    assert [event["known"] for event in user["history"][-4:]] == [True, False, True, True]
    assert [event["stored"] for event in user["history"]] == [False] * len(saved) + [True] * 4
    assert np.sum([event["weights"] for event in user["reading"]["events"]], axis=0) == pytest.approx(1, abs=1e-4)
    assert sum(head["gate"] for head in user["reading"]["heads"]) == pytest.approx(1, abs=1e-5)


def test_at_now_by_default_where_the_server_is_told_so(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], at="now")
    assert client.get("/v1/users/u3/recommendations").json()["at"] > START
    client.post("/v1/users/u3/events", json={"events": [{"item": "i1", "time": "2099-01-01"}]})
    assert client.get("/v1/users/u3/recommendations").json()["at"] == 4_070_908_800
    # A clock that is ahead harms nobody: the present is not before the latest event.
    assert client.get("/v1/users/u3/recommendations?at=now").json()["at"] == 4_070_908_800
    assert client.get("/v1/model").json()["at"] == "now"


def test_events_are_forgotten(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
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


def test_users_and_items_are_found(folders: dict[str, Path], start: Start) -> None:
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


def test_two_models_side_by_side(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], folders["gru4rec"])
    client.post("/v1/users/ann/events", json={"events": events(HISTORY)})
    for name in (None, "mars-t", "gru4rec"):
        query = "" if name is None else f"?model={name}"
        library = Recommender.load(folders[name or "mars-t"])
        assert_same(
            client.get(f"/v1/users/ann/recommendations{query}").json()["items"], library.start(HISTORY).recommend()
        )
        told = client.get(f"/v1/model{query}").json()
        assert told["models"] == ["mars-t", "gru4rec"]
        assert told["model"]["name"] == (name or "mars-t")
        assert len(told["model"]["heads"]) == (0 if name == "gru4rec" else 4)
    assert client.get("/v1/model?model=other").json()["error"]["code"] == "unknown_model"


def test_health_and_metrics(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    assert client.get("/healthz").json() == client.get("/readyz").json() == {"status": "ok"}
    client.post("/v1/users/ann/events", json={"events": events([*HISTORY, HISTORY[0]])})
    client.get("/v1/users/ann/recommendations")
    text = client.get("/metrics").text
    assert 'marsrec_events_total{new="yes"} 3.0' in text
    assert 'marsrec_events_total{new="no"} 1.0' in text
    assert 'marsrec_sessions{model="mars-t"} 1.0' in text
    assert 'marsrec_requests_total{method="GET",route="/v1/users/{user:path}/recommendations",status="200"} 1.0' in text


def test_concurrent_requests_are_answered_together_and_right(folders: dict[str, Path], start: Start) -> None:
    client, library = start(folders["mars-m"]), Recommender.load(folders["mars-m"])
    expected = {user: library.start(user).recommend(k=5) for user in (f"u{number}" for number in range(20))}
    wrong: list[object] = []

    def ask(user: str) -> None:
        for _ in range(5):
            try:
                assert_same(client.get(f"/v1/users/{user}/recommendations?k=5").json()["items"], expected[user])
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask, args=(user,)) for user in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_titles_are_told_and_searched(start: Start, tmp_path: Path) -> None:
    histories = Histories.from_log(read_log(LOG))
    titles = {"item": ["i3", "i4"], "title": ["Green tea", "Milk"]}
    named, _ = with_titles(histories, pl.DataFrame(titles))
    train("mars-t", named).save(tmp_path / "named")
    client = start(tmp_path / "named")
    assert client.get("/v1/items", params={"search": "tea"}).json()["items"][0]["title"] == "Green tea"
    history = [{"item": "i3", "time": START}, {"item": "i9", "time": START + 60}]
    asked = {"history": history, "k": 20, "explain": True, "mask_seen": False}
    (answer,) = client.post("/v1/recommend", json=asked).json()["results"]
    assert {entry["item"]: entry["title"] for entry in answer["items"]}["i4"] == "Milk"
    assert [event["title"] for event in answer["reading"]["events"]] == ["Green tea", None]
    similar = client.get("/v1/items/i9/similar", params={"k": 19}).json()["items"]
    assert {entry["item"]: entry["title"] for entry in similar}["i3"] == "Green tea"
