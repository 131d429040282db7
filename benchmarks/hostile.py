"""Honest clients beside hostile connections: what the honest ones lose.

`python -m benchmarks.hostile [--seconds 60] [--connections 500]`; a hostile connection that is closed is opened anew.
"""

import argparse
import asyncio
import json
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.measure import show
from benchmarks.serving import ITEMS, fill, given, model, stored
from benchmarks.wrk import Server, load

CLIENTS = 8
HEAD = b"POST /v1/recommend HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
UNKNOWN = json.dumps({f"k{key}": 0 for key in range(300_000)}).encode()
KINDS = {
    "silent": [b""],
    "a head drop by drop": [HEAD, *[b"X: y\r\n"] * 100],
    "a body drop by drop": [HEAD + b"Content-Length: 1000\r\n\r\n", *[b" "] * 100],
    "chunks without end": [HEAD + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\n \r\n"] * 100],
    "an answer that is not taken": [b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 50],
    "a large body of nonsense": [HEAD + b"Content-Length: %d\r\n\r\n" % len(UNKNOWN), UNKNOWN],
}
LARGE = "a large body of nonsense"


async def attack(port: int, kind: str, end: asyncio.Event, opened: Counter[str]) -> None:
    """Connect again and again, send one piece a second, and read nothing."""
    while not end.is_set():
        writer = None
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            opened[kind] += 1
            for piece in KINDS[kind]:
                writer.write(piece)
                await asyncio.wait_for(writer.drain(), 10)
                await asyncio.sleep(1)
            while not writer.transport.is_closing() and not end.is_set():
                await asyncio.sleep(1)
        except OSError:
            await asyncio.sleep(0.1)
        finally:
            if writer is not None:
                writer.transport.abort()


class Attack:
    """Hostile connections of all kinds, from a thread of their own. One sends large bodies, which cost it as much."""

    def __init__(self, port: int, connections: int) -> None:
        self.opened: Counter[str] = Counter()
        self._loop, self._end = asyncio.new_event_loop(), asyncio.Event()
        small = [kind for kind in KINDS if kind != LARGE]
        kinds = [LARGE, *(small[place % len(small)] for place in range(connections - 1))]
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(port, kinds),))

    async def _run(self, port: int, kinds: list[str]) -> None:
        await asyncio.gather(*(attack(port, kind, self._end, self.opened) for kind in kinds))

    def __enter__(self) -> "Attack":
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join()


def main() -> None:
    """Load the server without and with hostile connections, in turn."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--connections", type=int, default=500)
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as place, Server(model(Path(place), ITEMS, "mars-t")) as server:
        fill(server)
        for name, asked in (("histories", given(ITEMS)), ("users", stored())):
            load(server.port, asked, CLIENTS, 1)
            alone = load(server.port, asked, CLIENTS, max(2, chosen.seconds / 4), count=True)
            with Attack(server.port, chosen.connections) as hostile:
                beside = load(server.port, asked, CLIENTS, chosen.seconds / 2, count=True)
            rows.append(
                [
                    name,
                    f"{alone.rate:,.0f}",
                    f"{beside.rate:,.0f}",
                    f"{beside.rate / alone.rate:.2f}",
                    f"{alone.p99:.1f}",
                    f"{beside.p99:.1f}",
                    str(beside.wrong + beside.broken),
                    f"{hostile.opened.total():,}",
                ]
            )
    columns = ["asked for", "alone/s", "beside/s", "ratio", "p99 ms", "p99 ms beside", "errors", "hostile opened"]
    show(f"{CLIENTS} honest clients beside {chosen.connections} hostile connections", columns, rows)


if __name__ == "__main__":
    main()
