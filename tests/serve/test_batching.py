"""Micro-batches, and what happens when there is too much to do."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from marsrec.recommender.explanation import read
from marsrec.serve.batching import Batcher, OverloadError


def test_jobs_that_come_meanwhile_are_worked_on_together() -> None:
    sizes: list[int] = []
    first, go = threading.Event(), threading.Event()

    def work(jobs: list[int]) -> list[int]:
        sizes.append(len(jobs))
        first.set()
        go.wait(5)
        return [job * 10 for job in jobs]

    async def ask() -> list[list[int]]:
        asked = [asyncio.create_task(batcher.submit([0]))]
        while not first.is_set():
            await asyncio.sleep(0.001)
        asked += [asyncio.create_task(batcher.submit([number])) for number in range(1, 7)]
        await asyncio.sleep(0.01)
        go.set()
        return await asyncio.gather(*asked)

    batcher = Batcher(work, most=4, waiting=100)
    batcher.start()
    assert asyncio.run(ask()) == [[10 * number] for number in range(7)]
    assert sizes == [1, 4, 2]
    batcher.close()


def test_a_full_queue_refuses_at_once_and_takes_all_or_nothing() -> None:
    go = threading.Event()
    batcher = Batcher(lambda jobs: [go.wait(5) and job for job in jobs], most=1, waiting=3)
    batcher.start()

    async def ask() -> None:
        busy = asyncio.create_task(batcher.submit([1]))
        while len(batcher) or not busy.get_coro():
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        waiting = asyncio.create_task(batcher.submit([2, 3]))
        await asyncio.sleep(0.01)
        with pytest.raises(OverloadError):
            await batcher.submit([4, 5])
        assert len(batcher) == 2
        last = asyncio.create_task(batcher.submit([6]))
        await asyncio.sleep(0.01)
        last.cancel()  # whoever asked went away
        go.set()
        assert [await busy, await waiting] == [[1], [2, 3]]
        assert await batcher.submit([7, 8, 9]) == [7, 8, 9]

    asyncio.run(ask())
    batcher.close()
    with pytest.raises(OverloadError):
        asyncio.run(batcher.submit([1]))


def test_an_error_is_that_of_its_job_or_of_all() -> None:
    def work(jobs: list[int]) -> list[int | Exception]:
        if 0 in jobs:
            raise BaseException("not even an Exception")
        return [ValueError(f"bad {job}") if job < 0 else job for job in jobs]

    batcher = Batcher(work, most=8, waiting=8, wait=0.01)
    batcher.start()

    async def ask() -> list[object]:
        asked = [batcher.submit([1]), batcher.submit([-1]), batcher.submit([2])]
        return await asyncio.gather(*asked, return_exceptions=True)

    one, bad, two = asyncio.run(ask())
    assert (one, two) == ([1], [2])
    assert str(bad) == "bad -1"
    with pytest.raises(RuntimeError, match="not even an Exception"):
        asyncio.run(batcher.submit([0]))
    assert asyncio.run(batcher.submit([5])) == [5]  # the thread goes on
    batcher.close()


def test_an_overloaded_server_answers_503_and_recovers(
    folders: dict[str, Path], start: Callable[..., TestClient]
) -> None:
    client = start(folders["mars-t"], queue=64, batch=1)
    service = client.app.state.service
    go, real = threading.Event(), service.users._work
    service.users._work = lambda jobs: go.wait(20) and real(jobs)
    answers: list[tuple[int, str | None]] = []

    def ask() -> None:
        answer = client.get("/v1/users/u1/recommendations")
        answers.append((answer.status_code, answer.headers.get("retry-after")))

    threads = [threading.Thread(target=ask) for _ in range(100)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(answers) < 35 and time.monotonic() < until:
        time.sleep(0.01)
    assert answers == [(503, "1")] * 35  # 64 wait and one is worked on
    assert client.get("/healthz").status_code == 200
    assert client.post("/v1/recommend", json={"history": []}).status_code == 200  # another thread's work
    go.set()
    for thread in threads:
        thread.join()
    assert answers[35:] == [(200, None)] * 65
    assert client.get("/v1/users/u1/recommendations").status_code == 200
    assert len(service.users) == 0


def test_what_cannot_wait_is_not_even_read(folders: dict[str, Path], start: Callable[..., TestClient]) -> None:
    client = start(folders["mars-t"], queue=64, batch=1)
    service = client.app.state.service
    go, real = threading.Event(), service.answers._work
    service.answers._work = lambda jobs: go.wait(20) and real(jobs)
    body = {"histories": [[]] * 64}
    waiting = [threading.Thread(target=client.post, args=("/v1/recommend",), kwargs={"json": body}) for _ in range(2)]
    for thread in waiting:  # one of the first is worked on, so that one place is left, which the second do not fit into
        thread.start()
    filler = threading.Thread(target=client.post, args=("/v1/recommend",), kwargs={"json": {"history": []}})
    until = time.monotonic() + 20
    while len(service.answers) < 63 and time.monotonic() < until:
        time.sleep(0.01)
    filler.start()
    while not service.answers.full and time.monotonic() < until:
        time.sleep(0.01)
    refused = client.post("/v1/recommend", content=b"not even JSON", headers={"Content-Type": "application/json"})
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.get("/v1/users/u1").status_code == 200  # another thread's work
    go.set()
    for thread in (*waiting, filler):
        thread.join()
    refused = client.post("/v1/recommend", content=b"not even JSON", headers={"Content-Type": "application/json"})
    assert refused.status_code == 400


def test_too_many_requests_under_way(folders: dict[str, Path], start: Callable[..., TestClient]) -> None:
    client = start(folders["mars-t"], requests=4)
    service = client.app.state.service
    go, real = threading.Event(), service.explained._work
    service.explained._work = lambda jobs: go.wait(20) and real(jobs)
    codes: list[int] = []
    threads = [threading.Thread(target=lambda: codes.append(client.get("/v1/users/u1").status_code)) for _ in range(10)]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(codes) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    assert client.get("/v1/model").json()["error"]["code"] == "overload"
    go.set()
    for thread in threads:
        thread.join()
    assert sorted(codes) == [200] * 4 + [503] * 6


def test_nobody_waits_for_a_long_history_that_is_explained(
    folders: dict[str, Path], start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-m"])
    go, reading, codes = threading.Event(), threading.Event(), []

    def slow(*arguments: object, **options: object) -> object:
        reading.set()
        assert go.wait(20)
        return read(*arguments, **options)

    monkeypatch.setattr("marsrec.serve.worker.read", slow)
    looks = ["/v1/users/u1", "/v1/users/u1/recommendations?explain=true"]
    threads = [threading.Thread(target=lambda look=look: codes.append(client.get(look).status_code)) for look in looks]
    event = {"item": "i1", "time": 1_700_000_000}
    asked = {"history": [event], "explain": True}
    threads.append(threading.Thread(target=lambda: codes.append(client.post("/v1/recommend", json=asked).status_code)))
    for thread in threads:
        thread.start()
    assert reading.wait(20)
    assert client.get("/v1/users/u1/recommendations").status_code == 200
    assert client.post("/v1/recommend", json={"history": [event]}).status_code == 200
    assert client.post("/v1/users/u1/events", json={"events": [event]}).status_code == 200
    assert codes == []
    go.set()
    for thread in threads:
        thread.join()
    assert codes == [200, 200, 200]


def test_a_store_that_is_away_stops_only_what_needs_it(
    folders: dict[str, Path], start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-t"])

    def away(*arguments: object, **options: object) -> None:
        raise sa.exc.OperationalError("SELECT", {}, Exception("the disk is gone"))

    with monkeypatch.context() as patch:
        patch.setattr(client.app.state.service.store.engine, "connect", away)
        event = {"events": [{"item": "i1", "time": 1_700_000_000}]}
        for answer in (
            client.get("/v1/users/u1"),
            client.get("/v1/users/u1/recommendations"),
            client.post("/v1/users/u1/events", json=event),
            client.get("/v1/users"),
            client.get("/readyz"),
        ):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_away")
            assert "disk" not in answer.text
        assert client.post("/v1/recommend", json={"history": event["events"]}).status_code == 200
        assert client.get("/healthz").status_code == 200
    assert client.post("/v1/users/u1/events", json=event).json()["new"] == 1
    assert client.get("/readyz").status_code == 200


def test_a_store_that_is_silent_holds_only_those_who_need_it(
    folders: dict[str, Path], start: Callable[..., TestClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    client = start(folders["mars-t"])
    store = client.app.state.service.store
    go, asked, answered = threading.Event(), [], []
    real = {name: getattr(store, name) for name in ("versions", "search", "check")}

    def silent(name: str) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            asked.append(name)
            assert go.wait(20)
            return real[name](*arguments)

        return call

    for name in real:
        monkeypatch.setattr(store, name, silent(name))
    addresses = ["/v1/users/u1/recommendations", *["/readyz"] * 5, *["/v1/users?search=u"] * 10]
    threads = [
        threading.Thread(target=lambda address=address: answered.append(client.get(address).status_code))
        for address in addresses
    ]
    for thread in threads:
        thread.start()
    until = time.monotonic() + 20
    while len(asked) < 6 and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.1)
    assert sorted(asked) == ["check"] + ["search"] * 4 + ["versions"]  # no more connections than these
    history = {"history": [{"item": "i1", "time": 1_700_000_000}]}
    assert client.post("/v1/recommend", json=history).status_code == 200
    assert client.get("/v1/items/i1/similar").status_code == 200
    assert client.post("/v1/users/ann/events", json={"events": history["history"]}).status_code == 200
    assert answered == []
    go.set()
    for thread in threads:
        thread.join()
    assert answered == [200] * len(addresses)
