"""A server that is killed at any moment loses and doubles nothing that it has acknowledged.

`MARSREC_TEST_KILLS` and `MARSREC_TEST_EVENTS` make it longer: 20 and 5000 for the full test.
"""

import contextlib
import http.client
import multiprocessing
import os
import shutil
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from json import dumps, loads
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from marsrec import Recommender
from marsrec.errors import MarsrecError
from marsrec.serve.app import serve
from marsrec.serve.settings import ServeSettings
from marsrec.serve.store import Store
from marsrec.serve.supervisor import supervise

if sys.platform == "win32":
    pytest.skip("its servers are forked and get signals", allow_module_level=True)

KILLS = int(os.environ.get("MARSREC_TEST_KILLS", "2"))
EVENTS = int(os.environ.get("MARSREC_TEST_EVENTS", "120"))
START = 1_700_000_000
PROCESSES = multiprocessing.get_context("forkserver")  # imports once for all starts
PROCESSES.set_forkserver_preload(["marsrec.serve.app"])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """A server in a process of its own, that can be killed and started again."""

    def __init__(self, folder: Path, store: str, workers: int = 1) -> None:
        self.settings = ServeSettings(models=(folder,), store=store, port=free_port(), threads=1, workers=workers)
        self.start()

    def start(self) -> None:
        target = serve if self.settings.workers == 1 else supervise
        self.process = PROCESSES.Process(target=target, args=(self.settings,), daemon=True)
        self.process.start()

    def kill(self) -> None:
        """Kill it and its workers, before it starts others in their place."""
        workers = self.workers()
        self.process.kill()
        for worker in workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(worker, signal.SIGKILL)

    def workers(self) -> list[int]:
        """Its processes beside the one that was started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(child) for child in children.read_text().split()]

    def signal(self, how: signal.Signals) -> None:
        assert self.process.pid is not None
        os.kill(self.process.pid, how)

    def ended(self) -> int | None:
        self.process.join(30)
        return self.process.exitcode

    def listening(self) -> None:
        """Wait until the server listens, which is before it has loaded its model."""
        until = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.settings.port)).close()
                return
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.01)

    def request(self, path: str, body: Any = None, patience: float = 120) -> Any:
        """Send until there is an answer: again to a server that is starting, or dies meanwhile."""
        until = time.monotonic() + patience
        while True:
            try:
                data = None if body is None else dumps(body).encode()
                message = urllib.request.Request(f"http://127.0.0.1:{self.settings.port}{path}", data)
                message.add_header("Content-Type", "application/json")
                with urllib.request.urlopen(message, timeout=30) as answer:
                    return loads(answer.read())
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "events.db")
        return
    if not (server := os.environ.get("MARSREC_TEST_POSTGRES")):
        pytest.skip("needs PostgreSQL: set MARSREC_TEST_POSTGRES to the URL of a database for tests")
    name = f"test_{uuid.uuid4().hex}"
    url = sa.make_url(server).set(drivername="postgresql+psycopg")
    admin = sa.create_engine(url, isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(sa.text(f"CREATE DATABASE {name}"))
        yield url.set(database=name).render_as_string(hide_password=False)
        connection.execute(sa.text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.mark.parametrize("workers", [1, 2])
def test_no_acknowledged_event_is_lost_and_none_is_doubled(folders: dict[str, Path], store: str, workers: int) -> None:
    rng = np.random.default_rng(0)
    server = Server(folders["mars-m"], store, workers)
    users = [f"user{number}" for number in range(20)]
    acknowledged: dict[str, set[tuple[str, int]]] = {user: set() for user in users}
    kill_after = set(np.linspace(EVENTS * 0.2, EVENTS * 0.9, KILLS).astype(int).tolist())
    new = sent = killed = 0
    try:
        server.request("/readyz")
        while sent < EVENTS:
            user = users[rng.integers(len(users))]
            batch = [(f"i{rng.integers(20)}", START + int(rng.integers(10**6))) for _ in range(rng.integers(1, 4))]
            body = {"events": [{"item": item, "time": time} for item, time in batch]}
            if kill_after & set(range(sent, sent + len(batch))):
                # Killed while the request is on its way: it may or may not have been kept, and is sent again.
                delay = float(rng.uniform(0, 0.02))
                killer = threading.Timer(delay, server.kill)
                killer.start()
                with contextlib.suppress(OSError):
                    server.request(f"/v1/users/{user}/events", body, patience=0)
                killer.join()
                assert server.ended() == -signal.SIGKILL
                killed += 1
                server.start()
            answer = server.request(f"/v1/users/{user}/events", body)
            assert answer["received"] == len(batch)
            new += answer["new"]
            sent += len(batch)
            acknowledged[user] |= set(batch)
            if rng.random() < 0.1:
                server.request(f"/v1/users/{user}/recommendations")
        library = Recommender.load(folders["mars-m"])
        kept = Store(store if "://" in store else f"sqlite:///{store}", "s")
        for user in users:
            events = [(event.item, event.time) for event in kept.events(user)]
            assert len(events) == len(set(events))
            assert set(events) == acknowledged[user]
            if not events:
                continue
            history = sorted(events, key=lambda event: event[1])
            expected = library.start(history).recommend(k=5)
            shown = server.request(f"/v1/users/{user}/recommendations?k=5")["items"]
            np.testing.assert_allclose([row["score"] for row in shown], expected["score"], atol=2e-4)
            scores = dict(library.start(history).recommend(k=20).select("item", "score").iter_rows())
            np.testing.assert_allclose([scores[row["item"]] for row in shown], expected["score"], atol=2e-4)
        kept.close()
        assert killed == KILLS
        server.signal(signal.SIGTERM)
        server.signal(signal.SIGHUP)  # which does not kill what is being closed
        assert server.ended() == -signal.SIGTERM  # passed on when all is closed
    finally:
        server.process.kill()


def test_workers_see_each_others_events_load_together_and_are_replaced(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(folders["mars-m"], tmp_path / "model"))
    server = Server(folder, str(tmp_path / "events.db"), workers=2)
    try:
        server.request("/readyz")
        until = time.monotonic() + 60
        lines: dict[float, http.client.HTTPConnection] = {}  # to each worker, by when it has loaded its model
        while len(lines) < 2 and time.monotonic() < until:
            line = http.client.HTTPConnection("127.0.0.1", server.settings.port, timeout=60)
            lines.setdefault(asked(line, "/v1/model")["model"]["loaded"], line)
        one, other = lines.values()
        for turn, (line, reader) in enumerate([(one, other), (other, one), (one, other)], start=1):
            event = {"item": f"i{3 * turn}", "time": START + turn}
            assert asked(line, "/v1/users/ann/events", {"events": [event]})["new"] == 1
            found = [asked(each, "/v1/users/ann/recommendations?k=20") for each in (reader, line)]
            assert found[0] == found[1]
            assert len(found[0]["items"]) == 20 - turn  # without those that were taken
            assert found[0]["at"] == asked(reader, "/v1/users/ann")["history"][-1]["time"] == START + turn
        assert asked(other, "/v1/users/ann/events?item=i3&time=" + str(START + 1), method="DELETE") == {"removed": 1}
        assert asked(one, "/v1/users/ann")["events"] == 2
        assert len(asked(one, "/v1/users/ann/recommendations?k=20")["items"]) == 18

        sums = metrics(one)
        assert sums['marsrec_events_total{new="yes"}'] == 3
        assert sums['marsrec_sessions{model="model"}'] == 2  # one in each
        assert metrics(other)["marsrec_events_removed_total"] == 1

        (folder / "config.json").rename(folder / "hidden.json")
        refused = asked(one, "/v1/model/reload", method="POST")
        assert refused["error"]["code"] == "refused"
        assert {asked(line, "/v1/model")["model"]["loaded"] for line in (one, other)} == set(lines)
        (folder / "hidden.json").rename(folder / "config.json")
        assert asked(one, "/v1/model/reload", method="POST") == {"reloaded": ["model"]}
        assert {asked(line, "/v1/model")["model"]["loaded"] for line in (one, other)}.isdisjoint(lines)

        before = server.workers()
        os.kill(before[0], signal.SIGKILL)
        while not (len(now := server.workers()) == 2 and before[0] not in now) and time.monotonic() < until:
            assert server.request("/v1/users/ann")["events"] == 2  # the other one goes on
        assert len(now) == 2
        server.signal(signal.SIGTERM)
        assert server.ended() == -signal.SIGTERM
        assert [worker for worker in now if Path(f"/proc/{worker}").exists()] == []
    finally:
        server.kill() if server.process.is_alive() else None


def asked(line: http.client.HTTPConnection, path: str, body: Any = None, method: str | None = None) -> Any:
    """The answer of the worker at the other end of a connection."""
    content = None if body is None else dumps(body)
    line.request(method or ("GET" if body is None else "POST"), path, content, {"Content-Type": "application/json"})
    return loads(line.getresponse().read())


def metrics(line: http.client.HTTPConnection) -> dict[str, float]:
    line.request("GET", "/metrics")
    lines = line.getresponse().read().decode().splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def test_several_workers_that_cannot_start_say_why(tmp_path: Path) -> None:
    with pytest.raises(MarsrecError, match="nothing"):
        supervise(ServeSettings(models=(tmp_path / "nothing",), port=free_port(), workers=2))


def test_hang_up_loads_the_model_anew_and_terminate_ends_the_server(folders: dict[str, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(folders["mars-t"], tmp_path / "model"))
    server = Server(folder, str(tmp_path / "events.db"))
    try:
        server.listening()
        server.signal(signal.SIGHUP)  # does not kill what is still loading its model
        before = server.request("/v1/model")["model"]
        (folder / "config.json").rename(folder / "hidden.json")
        server.signal(signal.SIGHUP)
        time.sleep(0.5)
        assert server.request("/v1/model")["model"] == before  # refused
        (folder / "hidden.json").rename(folder / "config.json")
        until = time.monotonic() + 30
        while server.request("/v1/model")["model"]["loaded"] == before["loaded"] and time.monotonic() < until:
            server.signal(signal.SIGHUP)
            time.sleep(0.2)
        after = server.request("/v1/model")["model"]
        assert after["loaded"] > before["loaded"]
        assert after["fingerprint"] == before["fingerprint"]
        server.signal(signal.SIGTERM)
        assert server.ended() == -signal.SIGTERM  # passed on when all is closed
    finally:
        server.process.kill()
