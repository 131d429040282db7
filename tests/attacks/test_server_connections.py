"""Clients that are silent, slow, endless or many: they cost a connection each, and nobody else anything."""

import asyncio
import contextlib
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvicorn

from marsrec.serve import connections, guard
from marsrec.serve.connections import HttpProtocol, Scarcity, descriptors, listen
from marsrec.serve.guard import Guard
from marsrec.serve.metrics import Metrics
from marsrec.serve.settings import ServeSettings

SETTINGS = ServeSettings(models=(Path("model"),), port=0, requests=60)
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\n"
LARGE = 16 * 2**20
Serve = Callable[..., int]


async def echo(scope: dict, receive: Callable, send: Callable) -> None:
    """Say how long the body was; of /large, much."""
    body = (await receive()).get("body", b"") if scope["method"] == "POST" else b""
    answer = b" " * LARGE if scope["path"] == "/large" else json.dumps(len(body)).encode()
    headers = [(b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Start a server whose patience is short; it ends with the test."""
    for module, name, value in (
        (connections, "HEAD_SECONDS", 0.5),
        (connections, "STALLED_SECONDS", 0.2),
        (connections, "WATCH_SECONDS", 0.05),
        (guard, "STALLED_SECONDS", 0.5),
    ):
        monkeypatch.setattr(module, name, value)
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def started(most: int = 1000) -> int:
        monkeypatch.setattr(HttpProtocol, "most", most)
        listener = listen(SETTINGS)
        app = Guard(echo, SETTINGS, Metrics())
        config = uvicorn.Config(app, http=HttpProtocol, ws="none", lifespan="off", log_level="error")
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        running.append((server, thread))
        return int(listener.getsockname()[1])

    yield started
    for server, thread in running:
        server.should_exit = server.force_exit = True
        thread.join()


def connected(port: int, sent: bytes = b"", count: int = 1) -> list[socket.socket]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.settimeout(20)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**16)  # what is not taken is seen sooner
        one.connect(("127.0.0.1", port))
        one.sendall(sent)
    return sockets


def honest(port: int, path: str = "/v1/recommend") -> int:
    client = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(client):
        client.request("POST" if path.startswith("/v1") else "GET", path, b"12" if path.startswith("/v1") else None)
        return client.getresponse().status


def rest(one: socket.socket) -> bytes:
    """All that comes until the server closes the connection."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while part := one.recv(2**16):
            found += part
    return found


@pytest.mark.parametrize(
    ("sent", "answer"),
    [
        (b"", b""),
        (b"\r\n\r\n", b""),
        (HEAD, b""),
        (HEAD + b"X-A: b", b""),
        (HEAD + b"Content-Length: 100\r\n\r\n{", b"408"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\n{ }\r\n", b"408"),
    ],
    ids=["silent", "blank", "half a head", "half a line", "half a body", "chunks without end"],
)
def test_half_open_connections_take_no_place_and_are_closed(serve: Serve, sent: bytes, answer: bytes) -> None:
    port = serve()
    hostile = connected(port, sent, count=190)
    for _ in range(5):
        assert honest(port) == honest(port, "/healthz") == 200
    for one in hostile[::10]:
        assert rest(one)[9:12] == answer


def test_a_full_house_makes_room_for_the_newest(serve: Serve) -> None:
    port = serve(most=20)
    hostile = [*connected(port, count=100), *connected(port, HEAD + b"Content-Length: 100\r\n\r\n", count=100)]
    for _ in range(5):
        assert honest(port) == honest(port, "/healthz") == 200
    assert sum(rest(one)[9:12] != b"503" for one in hostile) == 200  # they were closed, and nobody was refused


def test_an_idle_connection_is_bounded_and_a_second_request_is_answered(serve: Serve) -> None:
    port = serve()
    (one,) = connected(port, HEAD + b"Content-Length: 2\r\n\r\n{}" + HEAD + b"Content-Length: 2\r\n\r\n{}" + HEAD)
    assert rest(one).count(b"HTTP/1.1 200 OK") == 2  # and then the third waited in vain


@pytest.mark.parametrize(
    "piece",
    [b"X-A: " + b"b" * 1000 + b"\r\n", b"b" * 1000],
    ids=["headers", "a header"],
)
def test_heads_and_trailers_are_not_endless(serve: Serve, piece: bytes) -> None:
    port = serve()
    for start in (HEAD + b"X-B: c", HEAD + b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n0\r\nX-B: c"):
        (one,) = connected(port, start)
        with contextlib.closing(one), pytest.raises(OSError):  # noqa: PT012 - closed or reset
            for _ in range(100_000):
                one.sendall(piece)
    assert honest(port) == 200


def test_who_does_not_take_an_answer_is_dropped(serve: Serve) -> None:
    port = serve()
    hostile = connected(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n", count=3)
    until = time.monotonic() + 20
    for there in (True, False):
        while bool(HttpProtocol.unsent) != there:
            assert honest(port) == 200
            assert time.monotonic() < until
    assert len(rest(hostile[0])) < LARGE
    slow = connected(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")[0]
    assert len(rest(slow)) > LARGE  # one that takes it gets all of it


def test_answers_that_wait_are_bounded_together(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STALLED_SECONDS", 60.0)
    monkeypatch.setattr(connections, "UNSENT_BYTES", LARGE)
    port = serve()
    hostile = connected(port, b"GET /large HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", count=5)
    until = time.monotonic() + 20
    while not HttpProtocol.unsent and time.monotonic() < until:
        assert honest(port) == 200
    assert honest(port) == 200
    assert sum(len(rest(one)) > LARGE for one in hostile) == 1  # for which there was room


def test_bodies_that_come_in_are_bounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "ARRIVING_BYTES", 3000)
    settings = SETTINGS.model_copy(update={"body_bytes": 2000})
    checked = Guard(echo, settings, Metrics())

    async def sent(sizes: list[int]) -> int:
        statuses, parts = [], iter(sizes)

        async def receive() -> dict:
            if (size := next(parts, None)) is None:
                await asyncio.sleep(0.05)
            else:
                await asyncio.sleep(0)
            return {"type": "http.request", "body": b" " * (size or 0), "more_body": size is not None}

        async def send(message: dict) -> None:
            statuses.append(message.get("status"))

        scope = {"type": "http", "method": "POST", "path": "/v1/recommend", "headers": [(b"host", b"localhost")]}
        await checked(scope, receive, send)
        return statuses[0]

    async def together() -> list[int]:
        return await asyncio.gather(sent([1800]), sent([1500]), sent([10]), sent([20, 30]))

    assert asyncio.run(together()) == [503, 200, 200, 200]  # the largest makes room


def test_upgrades_and_what_is_no_http_are_refused_in_silence(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    port = serve()
    upgrade = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade, close\r\nUpgrade: websocket\r\n\r\n"
    assert rest(connected(port, upgrade)[0]).startswith(b"HTTP/1.1 200")
    for sent in (
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00",
        HEAD + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"X : y\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ):
        assert rest(connected(port, sent)[0])[9:12] == b"400", sent
    assert [record for record in caplog.records if record.levelno < logging.ERROR and "HTTP" in record.message] == []


def test_few_descriptors_leave_room_and_are_told(caplog: pytest.LogCaptureFixture) -> None:
    resource = pytest.importorskip("resource")
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wished = []

    def get(kind: int) -> tuple[int, int]:
        return 160, 160

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resource, "getrlimit", get)
        patch.setattr(resource, "setrlimit", lambda kind, limits: wished.append(limits))
        assert descriptors() == 80
        listen(SETTINGS.model_copy(update={"requests": 1024})).close()
    assert wished == [(160, 160)] * 2
    assert "At most 80 connections at a time, fewer than the 1,024 requests" in caplog.text
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before, hard)


def test_failures_to_accept_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    scarcity = Scarcity()
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        for _ in range(1000):
            scarcity(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "Too many")})
        assert len(caplog.records) == 1
        assert "no file descriptors left" in caplog.text
        scarcity(loop, {"message": "another", "exception": ValueError("one")})
    assert len(caplog.records) == 2
