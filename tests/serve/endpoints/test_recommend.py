"""Recommendations over HTTP: the same as the library's."""

import threading
from pathlib import Path

import numpy as np
import pytest
from tests.serve.conftest import HISTORY, LOG, START, Start, assert_same, events

from marsrec import Recommender


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
    row = client.get("/v1/users/ann/recommendations?explain=true&k=1&mask_seen=false").json()["items"][0]
    parts = row["explanation"]
    assert any(parts["earlier"])
    total = parts["last_state"] + np.sum(parts["shares"]) + np.sum(parts["earlier"])
    assert total == pytest.approx(row["score"], abs=1e-4)


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
    for result, at in zip(lists, moments, strict=True):
        assert result["at"] == at
        assert_same(result["items"], session.recommend(k=3, at=at))
    assert lists[0]["items"] != lists[1]["items"]  # the moment matters on the request clock
    user = client.get("/v1/users/u3").json()
    assert user["events"] == len(saved) + 4  # what was saved with the model is not doubled
    assert [event["item"] for event in user["history"][-4:]] == ["i3", "tea", "i4", "i5"]
    assert [event["known"] for event in user["history"][-4:]] == [True, False, True, True]
    assert [event["stored"] for event in user["history"]] == [False] * len(saved) + [True] * 4
    assert np.sum([event["weights"] for event in user["reading"]["events"]], axis=0) == pytest.approx(1, abs=1e-4)
    assert sum(head["gate"] for head in user["reading"]["heads"]) == pytest.approx(1, abs=1e-5)


def test_at_now_by_default_with_that_setting(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"], at="now", future=2**32)
    assert client.get("/v1/users/u3/recommendations").json()["at"] > START
    client.post("/v1/users/u3/events", json={"events": [{"item": "i1", "time": "2099-01-01"}]})
    assert client.get("/v1/users/u3/recommendations").json()["at"] == 4_070_908_800
    # A clock that is ahead harms nobody: the present is not before the latest event.
    assert client.get("/v1/users/u3/recommendations?at=now").json()["at"] == 4_070_908_800
    assert client.get("/v1/model").json()["at"] == "now"


def test_concurrent_requests_are_answered_together_and_right(folders: dict[str, Path], start: Start) -> None:
    client, library = start(folders["mars-m"]), Recommender.load(folders["mars-m"])
    expected = {user: library.start(user).recommend(k=5) for user in (f"u{number}" for number in range(20))}
    wrong: list[object] = []

    def request(user: str) -> None:
        for _ in range(5):
            try:
                assert_same(client.get(f"/v1/users/{user}/recommendations?k=5").json()["items"], expected[user])
            except BaseException as error:
                wrong.append(error)

    threads = [threading.Thread(target=request, args=(user,)) for user in expected]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
