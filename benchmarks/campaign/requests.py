"""Random requests to a running server: it answers or refuses each, and never with 500 or silence."""

import http.client
import json
import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import quote

from benchmarks.campaign.case import TOKENS, Kind, LostError, Outcome, mutated
from benchmarks.campaign.material import START, model
from benchmarks.campaign.running import Server

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 1.5, 2**31, 2**63, -(2**63), 10**30, 1e308, "", "i1", "i2", "u1", "unknown", "\x00"),
    *("a\nb", "x" * 300, "2023-11-14T22:13:20Z", "soon", START, START * 1000, [], {}, [[]], {"a": 1}, "é", "\ud800"),
)
KEYS = (
    "item",
    "time",
    "history",
    "events",
    "k",
    "now",
    "exclude",
    "candidates",
    "users",
    "requests",
    "explain",
    "user",
)


class Requests(Kind):
    name = "requests"
    share = 2.0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = Server(model(folder / "model"), str(folder / "events.db"))
        self.server.ready()
        described = self.server.request("/openapi.json")
        self.routes = [(method.upper(), path) for path, methods in described["paths"].items() for method in methods]
        self.routes += [("GET", "/"), ("GET", "/healthz"), ("PATCH", "/v1/recommend"), ("GET", "/../etc/passwd")]
        self.connection: http.client.HTTPConnection | None = None

    def close(self) -> None:
        self.server.close()

    def run(self, chance: Random, place: Path) -> Outcome:
        method, path = chance.choice(self.routes)
        while "{" in path:
            head, _, rest = path.partition("{")
            some = chance.choice(("u1", "i1", "i2", "%FF", "..", "%00", quote(chance.choice(TOKENS)[:300]), "a b"))
            path = head + some.replace(" ", "%20") + rest.partition("}")[2]
        if chance.random() < 0.3:
            path += "?" + "&".join(
                f"{chance.choice((*KEYS, 'limit', 'q'))}={quote(str(chance.choice(VALUES)), errors='replace')}"
                for _ in range(chance.randrange(4))
            )
        body = None
        if method in ("POST", "PUT", "DELETE", "PATCH"):
            body = json.dumps(self.body(chance)).encode()
            if chance.random() < 0.3:
                body = mutated(body, chance)
        headers = {"Content-Type": chance.choice(("application/json",) * 9 + ("text/plain",))}
        status, answer = self.send(method, path, body, headers)
        if status == 500 or status not in range(200, 600):
            raise RuntimeError(f"{method} {path} {(body or b'')[:300]!r}: {status} {answer[:300]!r}")
        if status >= 400 and path.startswith("/v1") and b"Traceback" in answer:
            raise RuntimeError(f"{method} {path}: a traceback")
        if status == 200 and method == "POST" and path == "/v1/recommend":
            json.loads(answer)
        return "answered" if status < 400 else "refused"

    def send(self, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, bytes]:
        """One request; on a connection that the server closed in between, on a new one."""
        for last in (False, True):
            if self.connection is None:
                self.connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
            try:
                self.connection.request(method, path, body, headers)
                response = self.connection.getresponse()
                return response.status, response.read()
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                self.connection = None
                if last:
                    raise LostError(f"{method} {path} {(body or b'')[:300]!r}: no answer ({error!r})") from error
                time.sleep(0.01)
        raise AssertionError

    def body(self, chance: Random) -> Any:
        """A good body, one with wrong values, or anything."""
        events = [
            {"item": f"i{chance.randrange(12)}", "time": START + chance.randrange(10**6)}
            for _ in range(chance.randrange(5))
        ]
        good = chance.choice(
            (
                {"history": events},
                {"events": events},
                {"history": events, "k": chance.randrange(1, 12)},
                {"requests": [{"history": events}] * chance.randrange(3)},
                {"item": "i1", "time": START},
            )
        )
        return good if chance.random() < 0.3 else self.twisted(good, chance)

    def twisted(self, value: Any, chance: Random) -> Any:
        if chance.random() < 0.15:
            return chance.choice(VALUES)
        if isinstance(value, dict):
            more = {chance.choice(KEYS): chance.choice(VALUES)} if chance.random() < 0.3 else {}
            return {key: self.twisted(item, chance) for key, item in value.items()} | more
        return [self.twisted(item, chance) for item in value] if isinstance(value, list) else value
