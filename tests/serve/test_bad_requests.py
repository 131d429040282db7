"""A hundred bad requests: each is a 4xx with a code, a message and a remedy."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from tests.serve.conftest import START

from marsrec.data.moments import instant
from marsrec.errors import SettingsError
from marsrec.serve.app import create_app
from marsrec.serve.settings import ServeSettings

GOOD = {"item": "i1", "time": START}


@pytest.fixture(scope="module")
def client(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = str(tmp_path_factory.mktemp("store") / "events.db")
    settings = ServeSettings(models=(folders["mars-t"],), store=store, body_bytes=100_000, user_events=50, future=2**32)
    with TestClient(create_app(settings), base_url="http://localhost", raise_server_exceptions=False) as client:
        client.post("/v1/users/late/events", json={"events": [{"item": "i1", "time": "2090-01-01"}]})
        yield client


BODIES: list[tuple[int, Any]] = [  # to /v1/recommend
    (422, {}),
    (422, []),
    (422, None),
    (422, "text"),
    (422, 7),
    (422, True),
    (422, {"history": None}),
    (422, {"history": "i1"}),
    (422, {"history": {}}),
    (422, {"history": [1]}),
    (422, {"history": ["i1"]}),
    (422, {"history": [["i1", START]]}),
    (422, {"history": [{}]}),
    (422, {"history": [{"item": "i1"}]}),
    (422, {"history": [{"time": START}]}),
    (422, {"history": [{"item": None, "time": START}]}),
    (422, {"history": [{"item": "", "time": START}]}),
    (422, {"history": [{"item": "x" * 201, "time": START}]}),
    (422, {"history": [{"item": 1.5, "time": START}]}),
    (422, {"history": [{"item": True, "time": START}]}),
    (422, {"history": [{"item": ["i1"], "time": START}]}),
    (422, {"history": [{"item": {"id": 1}, "time": START}]}),
    (422, {"history": [{"item": "a\x00b", "time": START}]}),
    (422, {"history": [{"item": "a\nb", "time": START}]}),
    (422, {"history": [{"item": 2**63, "time": START}]}),
    (422, {"history": [{"item": -(2**63) - 1, "time": START}]}),
    (422, {"history": [{"item": "i1", "time": None}]}),
    (422, {"history": [{"item": "i1", "time": -1}]}),
    (422, {"history": [{"item": "i1", "time": -1.5}]}),
    (422, {"history": [{"item": "i1", "time": True}]}),
    (422, {"history": [{"item": "i1", "time": 2**63}]}),
    (422, {"history": [{"item": "i1", "time": START * 100}]}),
    (422, {"history": [{"item": "i1", "time": ""}]}),
    (422, {"history": [{"item": "i1", "time": "yesterday"}]}),
    (422, {"history": [{"item": "i1", "time": "now"}]}),
    (422, {"history": [{"item": "i1", "time": " now"}]}),
    (422, {"history": [{"item": "i1", "time": "²"}]}),
    (422, {"history": [{"item": "i1", "time": "--5"}]}),
    (422, {"history": [{"item": "i1", "time": "-5"}]}),
    (422, {"history": [{"item": "i1", "time": "2020-13-01"}]}),
    (422, {"history": [{"item": "i1", "time": "2020-02-30"}]}),
    (422, {"history": [{"item": "i1", "time": "9999-12-31"}]}),
    (422, {"history": [{"item": "i1", "time": "0001-01-01"}]}),
    (422, {"history": [{"item": "i1", "time": "0001-01-01T00:00+23:59"}]}),
    (422, {"history": [{"item": "i1", "time": "1969-12-31T23:59:59Z"}]}),
    (422, {"history": [{"item": "i1", "time": "9" * 41}]}),
    (422, {"history": [{"item": "i1", "time": [START]}]}),
    (422, {"history": [{**GOOD, "user": "ann"}]}),
    (422, {"history": [GOOD], "histories": [[GOOD]]}),
    (422, {"histories": []}),
    (422, {"histories": [GOOD]}),
    (422, {"histories": [None]}),
    (422, {"histories": [[]] * 65}),
    (422, {"histories": {"ann": [GOOD]}}),
    (422, {"history": [GOOD], "k": 0}),
    (422, {"history": [GOOD], "k": -1}),
    (422, {"history": [GOOD], "k": 1001}),
    (422, {"history": [GOOD], "k": 2**70}),
    (422, {"history": [GOOD], "k": 2.5}),
    (422, {"history": [GOOD], "k": "ten"}),
    (422, {"history": [GOOD], "k": "10"}),
    (422, {"history": [GOOD], "k": None}),
    (422, {"history": [GOOD], "k": True}),
    (422, {"history": [GOOD], "at": START - 1}),
    (422, {"history": [GOOD], "at": "soon"}),
    (422, {"history": [GOOD], "at": -1}),
    (422, {"history": [GOOD], "at": 1e300}),
    (422, {"history": [GOOD], "at": {}}),
    (422, {"history": [GOOD], "at": 4_102_444_800}),
    (422, {"history": [GOOD], "mask_seen": "maybe"}),
    (422, {"history": [GOOD], "mask_seen": 1}),
    (422, {"history": [GOOD], "explain": None}),
    (422, {"history": [GOOD], "explain": True, "k": 101}),
    (422, {"histories": [[GOOD]] * 11, "explain": True}),
    (422, {"history": [GOOD], "candidates": []}),
    (422, {"history": [GOOD], "candidates": ["nothing"]}),
    (422, {"history": [GOOD], "candidates": "i1"}),
    (422, {"history": [GOOD], "candidates": [None]}),
    (422, {"history": [GOOD], "candidates": [1.5]}),
    (422, {"history": [GOOD], "candidates": [0] * 10_001}),
    (422, {"history": [GOOD], "unknown": 1}),
    (422, {"history": [GOOD], "K": 5}),
    (413, {"history": [GOOD] * 10_001}),
]
POSTS: list[tuple[int, Any]] = [  # to /v1/users/ann/events
    (422, {}),
    (422, []),
    (422, {"events": []}),
    (422, {"events": None}),
    (422, {"events": GOOD}),
    (422, {"events": [GOOD, {}]}),
    (422, {"events": [GOOD] * 1001}),
    (422, {"events": [{"item": "i1", "time": "now"}]}),
    (422, {"events": [{"item": "i1", "time": " now"}]}),
    (422, {"events": [{"item": "i1", "time": "now\t"}]}),
    (422, {"events": [{"item": "i1", "time": "2200-01-01"}]}),
    (422, {"events": [{"item": "\x7f", "time": START}]}),
    (422, {"events": [GOOD], "user": "bob"}),
    (409, {"events": [{"item": "i1", "time": START + number} for number in range(51)]}),
]
RAW = [  # bodies that are no JSON, or no text
    b"",
    b"{",
    b"nonsense",
    b"\xff\xfe",
    b'{"history": [',
    b'{"history": [{"item": "i1", "time": ' + b"9" * 5000 + b"}]}",
    b"[" * 50_000,
    b'{"history": [{"item": "\\ud800", "time": 1}]}',
    b'{"history": [{"item": "i1", "time": NaN}]}',
    b'{"history": [{"item": "i1", "time": Infinity}]}',
    b'{"history": [], "\\ud800": 1}',
    b"\x00",
]
ADDRESSES = [
    (404, "GET", "/v2/model"),
    (404, "GET", "/v1"),
    (404, "GET", "/v1/"),
    (404, "GET", "/v1/nothing"),
    (404, "GET", "/../../etc/passwd"),
    (404, "GET", "/static/../../app.py"),
    (404, "GET", "/docs/"),
    (405, "GET", "/v1/recommend"),
    (405, "PUT", "/v1/users/ann/events"),
    (405, "DELETE", "/v1/users/ann"),
    (405, "POST", "/v1/model"),
    (405, "POST", "/healthz"),
    (405, "GET", "/v1/model/reload"),
    (404, "GET", "/v1/users/nobody"),
    (404, "GET", "/v1/users/nobody/recommendations"),
    (404, "GET", "/v1/users/u1?model=other"),
    (404, "POST", "/v1/model/reload?model=other"),
    (404, "GET", "/v1/items/nothing/similar"),
    (422, "GET", "/v1/users/"),
    (422, "GET", f"/v1/users/{'x' * 201}"),
    (422, "GET", "/v1/users/a%00b"),
    (422, "GET", "/v1/users/u1?at=soon"),
    (422, "GET", "/v1/users/u1?at="),
    (422, "GET", "/v1/users/u1?at=5"),
    (422, "GET", "/v1/users/late?at=2026-01-01"),
    (422, "DELETE", "/v1/users/u1/events?item=i1"),
    (422, "DELETE", "/v1/users/u1/events?time=5"),
    (422, "DELETE", "/v1/users/u1/events?item=i1&time=soon"),
    (422, "DELETE", "/v1/users/u1/events?item=&time=5"),
    (422, "DELETE", "/v1/users/u1/events?item=i1&time=now"),
    (405, "DELETE", "/v1/users"),
    (422, "GET", "/v1/users/u1?unknown=1"),
    (422, "GET", "/v1/users/u1/recommendations?k=0"),
    (422, "GET", "/v1/users/u1/recommendations?k=1001"),
    (422, "GET", "/v1/users/u1/recommendations?k=x"),
    (422, "GET", "/v1/users/u1/recommendations?k=101&explain=true"),
    (422, "GET", "/v1/users/u1/recommendations?explain=perhaps"),
    (422, "GET", "/v1/users/u1/recommendations?mask_seen=2"),
    (400, "GET", "/v1/users/u1/recommendations?at=%FF"),
    (422, "GET", "/v1/users?limit=0"),
    (422, "GET", "/v1/users?limit=101"),
    (422, "GET", f"/v1/users?search={'x' * 201}"),
    (422, "GET", "/v1/users?search=%00"),
    (422, "GET", "/v1/items?limit=-1"),
    (422, "GET", "/v1/items/i1/similar?k=0"),
    (422, "GET", "/v1/items//similar"),
    (422, "GET", "/v1/model?model="),
]


def refused(answer: Any, status: int | None = None) -> None:
    assert 400 <= answer.status_code < 500, answer.text
    assert status is None or answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert set(error) == {"code", "message", "remedy"}
    assert all(isinstance(text, str) and text for text in error.values())
    assert "Traceback" not in answer.text


@pytest.mark.parametrize("place", range(len(BODIES)))
def test_bodies_of_recommend(client: TestClient, place: int) -> None:
    status, body = BODIES[place]
    refused(client.post("/v1/recommend", json=body), status)


@pytest.mark.parametrize("place", range(len(POSTS)))
def test_bodies_of_events(client: TestClient, place: int) -> None:
    status, body = POSTS[place]
    refused(client.post("/v1/users/ann/events", json=body), status)
    assert client.get("/v1/users/ann").status_code == 404  # nothing of it was kept


@pytest.mark.parametrize("place", range(len(RAW)))
def test_bodies_that_are_no_json(client: TestClient, place: int) -> None:
    headers = {"Content-Type": "application/json"}
    refused(client.post("/v1/recommend", content=RAW[place], headers=headers))
    refused(client.post("/v1/users/ann/events", content=RAW[place], headers=headers))


@pytest.mark.parametrize(("status", "method", "address"), ADDRESSES)
def test_addresses(client: TestClient, status: int, method: str, address: str) -> None:
    refused(client.request(method, address), status)


def test_another_content_type(client: TestClient) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/xml"):
        refused(client.post("/v1/recommend", content=b'{"history": []}', headers={"Content-Type": kind}), 422)


def test_there_are_a_hundred() -> None:
    assert len(BODIES) + len(POSTS) + 2 * len(RAW) + len(ADDRESSES) > 150


def test_messages_name_the_place(client: TestClient) -> None:
    answer = client.post("/v1/recommend", json={"history": [GOOD, {"item": "i1", "time": START, "mood": 1}]})
    assert answer.json()["error"]["message"] == "body.history.1.mood: Extra inputs are not permitted"
    answer = client.post("/v1/recommend", json={"history": [{"item": "i1", "time": []}]})
    assert answer.json()["error"]["message"] == (
        "body.history.0.time: Input should be a valid integer, or Input should be a valid number, "
        "or Input should be a valid string"
    )
    answer = client.post("/v1/recommend", content=b'{"history": []}')
    assert "with Content-Type: application/json" in answer.json()["error"]["remedy"]
    answer = client.get("/v1/users/u1?at=2020-99-99")
    assert "an ISO date such as 2014-03-01T12:00" in answer.json()["error"]["message"]


@pytest.mark.parametrize("text", ["²", "--5", "-", "", "9" * 5000, "1_000", "nowhere"])
def test_text_that_is_no_moment(text: str) -> None:
    with pytest.raises(SettingsError, match="a moment is a number, an ISO date such as"):
        instant(text, "s")


def test_users_that_no_request_could_name_are_not_made(client: TestClient) -> None:
    for user in ("ann/recommendations", "ann/events", "/events"):
        answer = client.post(f"/v1/users/{user}/events", json={"events": [GOOD]})
        refused(answer, 422)
        assert answer.json()["error"]["code"] == "bad_user"


def test_events_of_a_request_have_a_limit_in_all(folders: dict[str, Path], start: Callable[..., TestClient]) -> None:
    client = start(folders["mars-t"])
    for events, status in ((6_666, 200), (6_667, 422)):
        answer = client.post("/v1/recommend", json={"histories": [[GOOD] * events] * 3 + [[GOOD] * 2], "k": 1})
        assert answer.status_code == status
    assert answer.json()["error"]["message"] == "body: more than 20,000 events in all"
