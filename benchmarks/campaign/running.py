"""A server in a process of its own, that can be killed and started again."""

import json
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.campaign import children
from benchmarks.campaign.case import PROCESSES

PATIENCE = 120.0


class Server:
    def __init__(self, folder: Path, store: str) -> None:
        self.folder, self.store = folder, store
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self.start()

    def start(self) -> None:
        self.process = PROCESSES.Process(target=children.server, args=(self.folder, self.store, self.port), daemon=True)
        self.process.start()

    def ready(self) -> None:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.request("/readyz")
                return
            except OSError:
                if time.monotonic() > until or self.process.exitcode is not None:
                    raise
                time.sleep(0.02)

    def request(self, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        message = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", data)
        message.add_header("Content-Type", "application/json")
        with urllib.request.urlopen(message, timeout=PATIENCE) as answer:
            return json.loads(answer.read())

    def kill(self) -> None:
        self.process.kill()
        self.process.join(30)

    def close(self) -> None:
        self.process.terminate()
        self.process.join(30)
        if self.process.exitcode is None:
            self.kill()
