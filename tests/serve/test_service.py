"""What happens when there is too much to do, or the store is away."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from tests.serve.conftest import START, Start

from marsrec.recommender.explanation import read
from marsrec.serve.batching import Batcher

EVENT = {"item": "i1", "time": START}


def hold(batcher: Batcher[Any, Any], go: threading.Event) -> None:
    """Let the work of a thread wait."""
    real = batcher._work
    batcher._work = lambda jobs: real(jobs) if go.wait(20) else []


@contextmanager
def under_way(go: threading.Event, *requests: Callable[[], object]) -> Iterator[None]:
    """Requests in threads of their own, which are let go at the end of the block, however that ends."""
    threads = [threading.Thread(target=request) for request in requests]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        go.set()
        for thread in threads:
            thread.join()


def wait_until(done: Callable[[], bool]) -> None:
    until = time.monotonic() + 20
    while not done() and time.monotonic() < until:
        time.sleep(0.005)


def test_an_overloaded_server_answers_503_and_recovers(folders: dict[str, Path], start: Start) -> None:
    client, go = start(folders["mars-t"], queue=64, batch=1), threading.Event()
    service = client.app.state.service
    hold(service.users, go)
    answers: list[tuple[int, str | None]] = []

    def request() -> None:
        answer = client.get("/v1/users/u1/recommendations")
        answers.append((answer.status_code, answer.headers.get("retry-after")))

    with under_way(go, *[request] * 100):
        wait_until(lambda: len(answers) >= 35)
        assert answers == [(503, "1")] * 35  # 64 wait and one is worked on
        assert client.get("/healthz").status_code == 200
        assert client.post("/v1/recommend", json={"history": []}).status_code == 200  # another thread's work
    assert answers[35:] == [(200, None)] * 65
    assert client.get("/v1/users/u1/recommendations").status_code == 200
    assert len(service.users) == 0


def test_what_cannot_wait_is_not_even_read(folders: dict[str, Path], start: Start) -> None:
    client, go = start(folders["mars-t"], queue=64, batch=1), threading.Event()
    answers = client.app.state.service.answers
    hold(answers, go)
    no_json = {"content": b"not even JSON", "headers": {"Content-Type": "application/json"}}

    def many() -> None:
        client.post("/v1/recommend", json={"histories": [[]] * 64})

    def one() -> None:
        client.post("/v1/recommend", json={"history": []})

    # One of the first is worked on, so that one place is left, which the second do not fit into.
    with under_way(go, many, many):
        wait_until(lambda: len(answers) >= 63)
        with under_way(go, one):
            wait_until(lambda: answers.full)
            refused = client.post("/v1/recommend", **no_json)
            assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
            assert client.get("/v1/users/u1").status_code == 200  # another thread's work
    assert client.post("/v1/recommend", **no_json).status_code == 400


def test_too_many_requests_under_way(folders: dict[str, Path], start: Start) -> None:
    client, go = start(folders["mars-t"], requests=4), threading.Event()
    hold(client.app.state.service.explained, go)
    codes: list[int] = []
    with under_way(go, *[lambda: codes.append(client.get("/v1/users/u1").status_code)] * 10):
        wait_until(lambda: len(codes) >= 6)
        assert client.get("/v1/model").json()["error"]["code"] == "overload"
    assert sorted(codes) == [200] * 4 + [503] * 6


def test_nobody_waits_for_a_long_history_that_is_explained(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-m"])
    go, reading, codes = threading.Event(), threading.Event(), []

    def slow(*arguments: Any, **options: Any) -> object:
        reading.set()
        assert go.wait(20)
        return read(*arguments, **options)

    def look(address: str) -> Callable[[], None]:
        return lambda: codes.append(client.get(address).status_code)

    def post() -> None:
        codes.append(client.post("/v1/recommend", json={"history": [EVENT], "explain": True}).status_code)

    monkeypatch.setattr("marsrec.serve.worker.read", slow)
    with under_way(go, look("/v1/users/u1"), look("/v1/users/u1/recommendations?explain=true"), post):
        assert reading.wait(20)
        assert client.get("/v1/users/u1/recommendations").status_code == 200
        assert client.post("/v1/recommend", json={"history": [EVENT]}).status_code == 200
        assert client.post("/v1/users/u1/events", json={"events": [EVENT]}).status_code == 200
        assert codes == []
    assert codes == [200, 200, 200]


def test_a_store_that_is_away_stops_only_what_needs_it(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-t"])

    def away(*arguments: object, **options: object) -> None:
        raise sa.exc.OperationalError("SELECT", {}, Exception("the disk is gone"))

    with monkeypatch.context() as patch:
        patch.setattr(client.app.state.service.store.engine, "connect", away)
        for answer in (
            client.get("/v1/users/u1"),
            client.get("/v1/users/u1/recommendations"),
            client.post("/v1/users/u1/events", json={"events": [EVENT]}),
            client.get("/v1/users"),
            client.get("/readyz"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_away")
            assert "disk" not in answer.text
        assert client.post("/v1/recommend", json={"history": [EVENT]}).status_code == 200
        assert client.get("/healthz").status_code == 200
    assert client.post("/v1/users/u1/events", json={"events": [EVENT]}).json()["new"] == 1
    assert client.get("/readyz").status_code == 200


def test_a_store_that_is_silent_holds_only_those_who_need_it(
    folders: dict[str, Path], start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-t"])
    store = client.app.state.service.store
    go, calls, codes = threading.Event(), [], []
    real = {name: getattr(store, name) for name in ("versions", "search", "check")}

    def silent(name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            calls.append(name)
            assert go.wait(20)
            return real[name](*arguments)

        return call

    def look(address: str) -> Callable[[], None]:
        return lambda: codes.append(client.get(address).status_code)

    for name in real:
        monkeypatch.setattr(store, name, silent(name))
    addresses = ["/v1/users/u1/recommendations", *["/readyz"] * 5, *["/v1/users?search=u"] * 10]
    with under_way(go, *map(look, addresses)):
        wait_until(lambda: len(calls) >= 6)
        time.sleep(0.1)
        assert sorted(calls) == ["check"] + ["search"] * 4 + ["versions"]  # no more connections than these
        assert client.post("/v1/recommend", json={"history": [EVENT]}).status_code == 200
        assert client.get("/v1/items/i1/similar").status_code == 200
        assert client.post("/v1/users/ann/events", json={"events": [EVENT]}).status_code == 200
        assert codes == []
    assert codes == [200] * len(addresses)
