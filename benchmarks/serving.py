"""The server under load, on loopback, with clients in this process: throughput, waiting, overload, memory, model swap.

`python -m benchmarks.serving` takes some minutes; `--quick` a small part of that. Client and server share the cores, so
that a server with cores of its own does better.
"""

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import torch

from benchmarks.measure import show
from marsrec import Recommender, TrainingSettings
from marsrec.data.histories import Vocabulary

START = 1_700_000_000
EVENTS = 30


class Connection:
    """A connection that is kept open; the least that an HTTP client does."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> "Connection":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()

    async def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self.writer.write(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        status = int((await self.reader.readline()).split()[1])
        length = 0
        while (line := await self.reader.readline()) != b"\r\n":
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return status, await self.reader.readexactly(length)


class Server:
    """`marsrec serve` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        command = [sys.executable, "-m", "marsrec", "serve", str(folder), "--port", "0", *options]
        store = ["--store", str(folder.with_name(f"{time.time_ns()}.db"))]
        self.process = subprocess.Popen([*command, *store], stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if "Serving http" in line:
                self.port = int(line.split(":")[2].split()[0])
                return
        raise RuntimeError(f"the server did not start: {''.join(lines)}")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def megabytes(self) -> float:
        """The most memory that the process has held so far."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) / 1024

    def count(self, name: str) -> float:
        """A number of /metrics."""
        _, body = asyncio.run(_once(self.port, "/metrics"))
        return sum(float(line.split()[-1]) for line in body.decode().splitlines() if line.startswith(name))


async def _once(port: int, path: str) -> tuple[int, bytes]:
    async with Connection(port) as connection:
        return await connection.send("GET", path)


def model(folder: Path, items: int, recipe: str = "mars-m") -> Path:
    """A saved model with random weights: what exact ranking costs does not depend on what was learned.

    An index gains from items that lie in clusters, as trained ones do; these lie in a thousand.
    """
    rng = np.random.default_rng(0)
    log = pl.DataFrame({"user": np.repeat(np.arange(50), 5), "item": np.arange(250), "time": START + np.arange(250)})
    training = TrainingSettings(epochs=1)
    recommender = Recommender(recipe, training=training).fit(log, progress=False)
    recommender.network = recommender.settings.build(items).eval()
    table = recommender.network.items.weight
    torch.manual_seed(0)
    with torch.no_grad():
        table.copy_(
            torch.randn(1000, table.shape[1])[torch.randint(1000, (items + 1,))] + 0.5 * torch.randn_like(table)
        )
    recommender.item_ids = Vocabulary(pl.Series(np.arange(items)))
    recommender.item_counts = np.append(0, rng.integers(1, 1000, items))
    recommender.save(folder, histories=False)
    return folder


def history(rng: np.random.Generator, items: int) -> list[dict[str, int]]:
    times = START + rng.integers(1, 10**5, EVENTS).cumsum()
    return [{"item": int(i), "time": int(t)} for i, t in zip(rng.integers(0, items, EVENTS), times, strict=True)]


async def load(port: int, clients: int, seconds: float, items: int) -> tuple[Counter[int], np.ndarray, float]:
    """Requests of several clients at once: how often each status, how long good answers took, and seconds in all."""
    started = time.perf_counter()
    statuses: Counter[int] = Counter()
    taken: list[float] = []
    until = time.perf_counter() + seconds

    async def client(seed: int) -> None:
        rng = np.random.default_rng(seed)
        bodies = [{"history": history(rng, items), "k": 10} for _ in range(20)]
        async with Connection(port) as connection:
            for turn in range(10**9):
                began = time.perf_counter()
                if began > until:
                    return
                status, _ = await connection.send("POST", "/v1/recommend", bodies[turn % len(bodies)])
                statuses[status] += 1
                if status == 200:
                    taken.append(time.perf_counter() - began)
                elif status == 503:
                    await asyncio.sleep(0.05)

    await asyncio.gather(*(client(seed) for seed in range(clients)))
    return statuses, np.array(taken), time.perf_counter() - started


async def event_to_recommendation(port: int, items: int, count: int, users: int) -> np.ndarray:
    """Seconds from posting an event to the recommendation that knows it; users of 200 events take turns."""
    rng = np.random.default_rng(1)
    taken = []
    async with Connection(port) as connection:
        for user in range(users):
            events = [{"item": int(i), "time": START + 60 * n} for n, i in enumerate(rng.integers(0, items, 200))]
            await connection.send("POST", f"/v1/users/user{user}/events", {"events": events})
        for turn in range(count):
            place = f"user{turn % users}"
            event = {"item": int(rng.integers(items)), "time": START + 10**6 + turn}
            began = time.perf_counter()
            await connection.send("POST", f"/v1/users/{place}/events", {"events": [event]})
            status, _ = await connection.send("GET", f"/v1/users/{place}/recommendations?k=10")
            taken.append(time.perf_counter() - began)
            assert status == 200
    return np.array(taken[1:])


async def swaps(port: int, folder: Path, times: int) -> Counter[int]:
    """Put another model into the folder and have it loaded, again and again, under load."""
    running = asyncio.create_task(load(port, 8, 2.0 * times, 12_101))
    other = Recommender.load(folder)
    async with Connection(port) as connection:
        for _ in range(times):
            with torch.no_grad():
                other.network.items.weight.mul_(1.01)
            await asyncio.to_thread(other.save, folder, histories=False)
            status, body = await connection.send("POST", "/v1/model/reload")
            assert status == 200, body
    statuses, _, _ = await running
    return statuses


def milliseconds(taken: np.ndarray) -> list[str]:
    return [f"{1e3 * value:.1f}" for value in np.quantile(taken, [0.5, 0.99])]


def main(quick: bool = False) -> None:
    torch.set_num_threads(1)
    seconds = 2.0 if quick else 8.0
    root = Path(tempfile.mkdtemp())
    try:
        _throughput(root, seconds, (12_101,) if quick else (12_101, 1_000_000))
        _latency(root, 50 if quick else 400)
        _overload(root, seconds)
        _memory(root, 2_000 if quick else 100_000)
        folder = model(root / "swapped", 12_101)
        with Server(folder) as server:
            times = 3 if quick else 20
            statuses = asyncio.run(swaps(server.port, folder, times))
            print(f"\n{times} swaps under load of 8 clients: {dict(statuses)} answers by status.")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _throughput(root: Path, seconds: float, sizes: tuple[int, ...]) -> None:
    rows = []
    for items, *options in (*((size,) for size in sizes), (sizes[-1], "--ann-from", "1")):
        with Server(model(root / f"{items}", items), *options) as server:
            asyncio.run(load(server.port, 8, 1.0, items))
            index = json.loads(asyncio.run(_once(server.port, "/v1/model"))[1])["model"]["index"]
            ranked = "exactly" if index is None else f"by index, recall {index['recall']:.3f}"
            for clients in (1, 8, 64):
                statuses, taken, elapsed = asyncio.run(load(server.port, clients, seconds, items))
                wrong = sum(statuses.values()) - statuses[200]
                rows.append(
                    [
                        f"{items:,}",
                        ranked,
                        str(clients),
                        f"{len(taken) / elapsed:,.0f}",
                        *milliseconds(taken),
                        str(wrong),
                    ]
                )
    show(
        f"Recommendations for histories of {EVENTS} events in the request (mars-m, k=10)",
        ["items", "ranked", "clients", "requests/s", "p50 ms", "p99 ms", "not 200"],
        rows,
        "Client and server on the same cores.",
    )


def _latency(root: Path, count: int) -> None:
    rows = []
    for recipe, crowd in (("mars-m", 200), ("mars-t", 2000)):
        folder = model(root / recipe, 12_101, recipe)
        for name, users, options in (("kept", 1, ()), ("built anew", crowd, ("--cache-mb", "1"))):
            with Server(folder, *options) as server:
                taken = asyncio.run(event_to_recommendation(server.port, 12_101, count, users))
                built = server.count("marsrec_sessions_built")
            rows.append([recipe, name, *milliseconds(taken), f"{built / count:.2f}"])
    show(
        "From a posted event to the recommendation that knows it (users of 200 events)",
        ["recipe", "sessions", "p50 ms", "p99 ms", "built per request"],
        rows,
        "Two requests, one after the other; the event is on disk before the first is answered.",
    )


def _overload(root: Path, seconds: float) -> None:
    rows = []
    with Server(model(root / "overloaded", 12_101), "--queue", "64") as server:
        asyncio.run(load(server.port, 8, 1.0, 12_101))
        for name, clients in (("what it holds", 64), ("more", 256), ("much more", 1000), ("after it", 8)):
            before = server.megabytes()
            statuses, taken, elapsed = asyncio.run(load(server.port, clients, seconds, 12_101))
            grown = server.megabytes() - before
            answered = f"{statuses[200] / elapsed:,.0f}", f"{statuses[503] / elapsed:,.0f}"
            others = sum(statuses.values()) - statuses[200] - statuses[503]
            rows.append([name, str(clients), *answered, str(others), *milliseconds(taken), f"{grown:+.1f}"])
    show(
        "Overload: a server whose queue holds 64 histories, and more clients than that at once",
        ["load", "clients", "200/s", "503/s", "others", "p50 ms", "p99 ms", "peak memory, MB"],
        rows,
        "A client that gets 503 waits 50 ms and tries again.",
    )


def _memory(root: Path, requests: int) -> None:
    with Server(model(root / "long", 12_101)) as server:
        asyncio.run(load(server.port, 8, 2.0, 12_101))
        asyncio.run(event_to_recommendation(server.port, 12_101, 200, 50))
        before, done = server.megabytes(), 0
        began = time.perf_counter()
        while done < requests:
            statuses, _, _ = asyncio.run(load(server.port, 16, 5.0, 12_101))
            done += statuses[200] + len(asyncio.run(event_to_recommendation(server.port, 12_101, 200, 50)))
        minutes = (time.perf_counter() - began) / 60
        after = server.megabytes()
        print(f"\nPeak memory: {before:.0f} MB, then {after:.0f} MB after {done:,} requests in {minutes:.1f} minutes.")


if __name__ == "__main__":
    main("--quick" in sys.argv)
