"""Requests that are large, ambiguous or wrong: refused at once, with nobody waiting for it, and nothing kept."""

# ruff: noqa: F811 - the fixtures of serving
import json
import logging
import sqlite3
import time
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import START, Start, folders, start  # noqa: F401

from marsrec.serve import bodies
from marsrec.serve.bodies import MOST_FAULTS, MOST_VALUES, read
from marsrec.serve.endpoints.recommend import RecommendRequest
from marsrec.serve.endpoints.users import Events
from marsrec.serve.refusals import RefusalError, RequestValidationError, places_of, refusal_of

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(folders: dict[str, Path], start: Start) -> TestClient:
    return start(folders["mars-t"])


def refused(schema: type, body: bytes) -> RefusalError:
    with pytest.raises((RefusalError, RequestValidationError)) as error:
        read(schema, body)
    return refusal_of(error.value)


def test_a_body_of_too_many_values_is_counted_and_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = b"{%b}" % b",".join(b'"k%d":0' % key for key in range(350_000))
    candidates = b'{"history":[],"candidates":[%b]}' % b",".join([b'""'] * 1_300_000)
    with monkeypatch.context() as patch:
        patch.setattr(bodies, "from_json", None)
        for body in (keys, candidates, b"[" + b"[]," * (MOST_VALUES + 1), b"[" + b'"\\",",' * (MOST_VALUES + 1)):
            assert (refused(RecommendRequest, body).status, refused(RecommendRequest, body).code) == (422, "too_much")
    texts = json.dumps({"history": [], "model": "," * MOST_VALUES + '\\"'}).encode()
    assert "model: Extra inputs" in refused(RecommendRequest, texts).message  # commas in texts are no values


@pytest.mark.parametrize(
    "body",
    [
        b"{%b}" % b",".join(b'"k%d":0' % key for key in range(40_000)),
        b'{"history":[],"candidates":[%b]}' % b",".join([b'""'] * 10_000),
        b'{"history":[%b]}' % b",".join([b"{}"] * 10_000),
        b'{"history":[{%b}]}' % b",".join(b'"k%d":0' % key for key in range(40_000)),
        b'{"histories":[%b]}' % b",".join([b"[1]"] * 64),
    ],
    ids=["keys", "candidates", "events", "keys of an event", "histories"],
)
def test_faults_are_looked_at_up_to_a_number(body: bytes) -> None:
    with pytest.raises(RequestValidationError) as error:
        read(RecommendRequest, body)
    assert 1 <= len(error.value.errors()) <= MOST_FAULTS
    assert refusal_of(error.value).status == 422


def test_large_bodies_are_read_in_a_thread_whatever_else_is_wrong(client: TestClient) -> None:
    body = json.dumps({"history": [{"item": "i1", "time": START}] * 5000}).encode()
    assert client.post("/v1/recommend", content=body, headers=JSON).status_code == 200
    loads = json.loads
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json, "loads", lambda text: pytest.fail("in the loop") if len(text) > 99_999 else loads(text))
        for address, kind in (
            ("/v1/recommend?no=1", "application/json"),
            ("/v1/recommend?model=" + "x" * 300, "application/problem+json"),
            (f"/v1/users/{'x' * 201}/events", "application/json"),
            ("/v1/recommend", "text/plain"),
        ):
            answer = client.post(address, content=body, headers={"Content-Type": kind})
            assert answer.status_code == 422


def test_other_shapes_of_json_are_refused() -> None:
    for text in ("[" * 100_000, '{"k":' * 50_000, '{"k": ' + "1" * 100_000 + "}", '{"k": NaN}', '{"at": -Infinity}'):
        assert refused(RecommendRequest, text.encode()).status in (400, 422)
    for at in ("9223372036854775808", "1e400", "-1", "NaN", '"\\ud800"', '"' + "9" * 41 + '"'):
        assert refused(RecommendRequest, b'{"history": [], "at": %b}' % at.encode()).status in (400, 422)
    for item in ('"\\ud800"', '"a\\u0000"', '"a\\u0085"', '""', '"' + "x" * 201 + '"', "1.0", "true", "1" + "0" * 20):
        body = b'{"events": [{"item": %b, "time": 1}]}' % item.encode()
        assert refused(Events, body).status in (400, 422)
    assert refused(RecommendRequest, b'{"k": 3, "k": 0, "history": []}').status == 422  # the last one counts


def test_users_that_are_no_utf8_have_no_history_together(client: TestClient) -> None:
    event = {"events": [{"item": "i1", "time": START}]}
    for user in ("%FF", "%FE", "a%C3", "%ED%A0%80"):
        for path in (f"/v1/users/{user}", f"/v1/users/{user}/recommendations"):
            assert client.get(path).json()["error"]["code"] == "bad_address"
        assert client.post(f"/v1/users/{user}/events", json=event).status_code == 400
        assert client.request("DELETE", f"/v1/users/a/events?item={user}&time=1").status_code == 400
        assert client.get(f"/v1/users?search={user}").status_code == 400
    for user in ("%00", "%0A", "%7F", "%C2%85", "x" * 201):
        assert client.post(f"/v1/users/{user}/events", json=event).status_code in (404, 422)
    composed, decomposed = "%C3%A9", "e%CC%81"  # the same to look at: ids are what was sent
    assert client.post(f"/v1/users/{composed}/events", json=event).json()["new"] == 1
    assert client.get(f"/v1/users/{decomposed}").status_code == 404


def test_an_address_says_one_thing_and_is_short(client: TestClient) -> None:
    for query in ("k=1&k=2", "k=1&%6B=2", "&".join(f"a{key}" for key in range(20)), "search=" + "x" * 9000):
        answer = client.get(f"/v1/users/u1/recommendations?{query}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "bad_address")
    for path in ("/static/..%2f..%2fapp.py", "/static/%2e%2e/app.py", "/static//etc/passwd", "/static/..%5capp.py"):
        assert client.get(path).status_code == 404
    for method in ("HEAD", "OPTIONS", "TRACE", "PUT"):
        assert client.request(method, "/v1/users/u1").status_code == 405
    name = {"Host": "localhost", "X-Name": "a"}
    answer = client.get("/v1/users/u1%0d%0aX-Evil:%201", headers=name)
    assert answer.status_code in (404, 422)
    assert "x-evil" not in answer.headers


def test_the_future_is_refused_beyond_a_skew(folders: dict[str, Path], start: Start) -> None:
    client = start(folders["mars-t"])
    address = "/v1/users/ann/events"

    def post(time: object) -> tuple[int, str]:
        answer = client.post(address, json={"events": [{"item": "i1", "time": START}, {"item": "i2", "time": time}]})
        return answer.status_code, answer.text

    now = int(time.time())
    for ahead in ("2099-01-01", now + 3600):
        status, text = post(ahead)
        assert status == 422
        assert "body.events.1.time: more than 300 seconds ahead of the server's time" in text
        assert "--future" in text
    assert client.get("/v1/users/ann").status_code == 404  # nothing of the post was kept
    assert post(now + 100)[0] == 200
    assert client.delete(f"{address}?item=i2&time=2099-01-01").status_code == 200  # of an older store
    assert client.post("/v1/users/bob/events", json={"events": [{"item": "i1"}]}).json()["new"] == 1
    assert now <= client.get("/v1/users/bob").json()["history"][0]["time"] <= now + 600
    wide = start(folders["mars-t"], future=2**32)
    assert wide.post(address, json={"events": [{"item": "i1", "time": "2099-01-01"}]}).status_code == 200


def test_the_log_knows_nobody(
    folders: dict[str, Path], start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = start(folders["mars-t"], store=str(tmp_path / "kept.db"))
    with sqlite3.connect(tmp_path / "kept.db") as database:
        database.execute("DROP TABLE marsrec_events")
    with caplog.at_level(logging.DEBUG, "marsrec"):
        posted = {"events": [{"item": "secret-item", "time": START}]}
        assert client.post("/v1/users/secret-user/events", json=posted).status_code == 503
        assert client.get("/v1/users/secret-user/recommendations").status_code in (404, 503)
    assert "the event store failed (OperationalError): no such table: marsrec_events" in caplog.text
    assert "secret" not in caplog.text
    user = "secret-user"
    with pytest.raises(KeyError, match="secret-user") as found:
        {}[user]
    assert "{}[user]" in places_of(found.value)
    assert "secret" not in places_of(found.value)
