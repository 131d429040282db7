"""Load on a server by wrk, a client in C that costs little, and a server to load."""

import http.client
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

SCRIPT = """
math.randomseed(1)
local asked, ready, turn, threads = {%(requests)s}, {}, 0, {}
local number = %(number)d
answered, refused, others = 0, 0, 0

function setup(thread) table.insert(threads, thread) end

function init(arguments)
  local headers = {["Content-Type"] = "application/json", ["Host"] = "localhost"}
  for place, one in ipairs(asked) do
    ready[place] = wrk.format(one[1], one[2], headers, one[3])
  end
end

function request()
  turn = turn %% #ready + 1
  if not %(numbered)s then return ready[turn] end
  number = number + 1  -- of as many digits each time, so that the length holds
  return (ready[turn]:gsub("@@@@@@@@@@", tostring(number)))
end

%(delay)s
%(count)s

function done(summary, latency, requests)
  local sums = {0, 0, 0}
  for _, thread in ipairs(threads) do
    sums = {sums[1] + thread:get("answered"), sums[2] + thread:get("refused"), sums[3] + thread:get("others")}
  end
  local errors = summary.errors
  io.write(string.format(
    '\\n{"requests":%%d,"micros":%%d,"wrong":%%d,"broken":%%d,"p50":%%f,"p99":%%f,' ..
    '"answered":%%d,"refused":%%d,"others":%%d}\\n',
    summary.requests, summary.duration, errors.status, errors.connect + errors.read + errors.write + errors.timeout,
    latency:percentile(50), latency:percentile(99), sums[1], sums[2], sums[3]))
end
"""
COUNT = """
function response(status, headers, body)
  if status == 200 then answered = answered + 1
  elseif status == 503 then refused = refused + 1
  else others = others + 1 end
end
"""
NUMBER = "@@@@@@@@@@"
"""In its place in a body stands another number of ten digits each time."""

Asked = tuple[str, str, str]
"""Method, address and body."""


@dataclass(frozen=True)
class Load:
    """What wrk saw."""

    rate: float
    """Answers per second, whatever their status."""
    p50: float
    """Milliseconds."""
    p99: float
    wrong: int
    """Answers of 400 and above."""
    broken: int = 0
    """Connections."""
    answered: int = 0
    """Of status 200, where they were counted."""
    refused: int = 0
    """Of status 503."""
    others: int = 0
    seconds: float = 0.0


class Wrk:
    """wrk with some requests, which it sends in turn."""

    def __init__(
        self,
        port: int,
        requests: Sequence[Asked],
        clients: int,
        seconds: float,
        *,
        every_ms: int = 0,
        count: bool = False,
        number: int = 0,
    ) -> None:
        if (wrk := shutil.which("wrk")) is None:
            sys.exit("this benchmark drives wrk: apt-get install wrk, or https://github.com/wg/wrk.")
        script = SCRIPT % {
            "requests": ",".join(f"{{'{method}','{path}',[==[{body}]==]}}" for method, path, body in requests),
            "number": number,
            "numbered": "true" if number else "false",
            "delay": f"function delay() return math.random(0, {2 * every_ms}) end" if every_ms else "",
            "count": COUNT if count else "",
        }
        self.file = tempfile.NamedTemporaryFile("w", suffix=".lua")  # noqa: SIM115
        self.file.write(script)
        self.file.flush()
        command = [wrk, "-t1", f"-c{clients}", f"-d{round(seconds)}s", "--timeout", "30s", "-s", self.file.name]
        self.process = subprocess.Popen([*command, f"http://127.0.0.1:{port}"], stdout=subprocess.PIPE, text=True)

    def result(self) -> Load:
        output, _ = self.process.communicate()
        self.file.close()
        found = json.loads(output.splitlines()[-1])
        seconds = found["micros"] / 1e6
        return Load(
            found["requests"] / seconds,
            found["p50"] / 1e3,
            found["p99"] / 1e3,
            found["wrong"],
            found["broken"],
            found["answered"],
            found["refused"],
            found["others"],
            seconds,
        )


def load(port: int, requests: Sequence[Asked], clients: int, seconds: float, **options: Any) -> Load:
    """Load of some clients that send as fast as they are answered."""
    return Wrk(port, requests, clients, seconds, **options).result()


def middle(runs: Sequence[Load]) -> Load:
    """Medians of several runs."""
    rates = (median(getattr(run, name) for run in runs) for name in ("rate", "p50", "p99"))
    return Load(*rates, wrong=sum(run.wrong for run in runs), broken=sum(run.broken for run in runs))


class Connection:
    """One connection that is kept open, for requests one after the other."""

    def __init__(self, port: int) -> None:
        self.client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        self.client.connect()
        self.client.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self.client.close()

    def send(self, method: str, path: str, body: object = None) -> tuple[int, bytes]:
        content = None if body is None else json.dumps(body)
        self.client.request(method, path, content, {"Host": "localhost", "Content-Type": "application/json"})
        answer = self.client.getresponse()
        return answer.status, answer.read()

    def json(self, method: str, path: str, body: object = None) -> Any:
        status, answer = self.send(method, path, body)
        assert status == 200, answer
        return json.loads(answer)


class Server:
    """`marsrec serve` in processes of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        store = ["--store", str(folder.with_name(f"{time.time_ns()}.db"))] if "--store" not in options else []
        command = [sys.executable, "-m", "marsrec", "serve", str(folder), "--port", str(self.port)]
        self.log = tempfile.TemporaryFile("w+")  # noqa: SIM115
        began = time.perf_counter()
        self.process = subprocess.Popen([*command, *store, *options], stderr=self.log)
        self.healthy = self._until("/healthz", began)
        self.ready = self._until("/v1/model", began)

    def _until(self, path: str, began: float) -> float:
        """Seconds until an address answered."""
        while self.process.poll() is None:
            try:
                with Connection(self.port) as connection:
                    if connection.send("GET", path)[0] == 200:
                        return time.perf_counter() - began
            except OSError:
                pass
            time.sleep(0.02)
        self.log.seek(0)
        raise RuntimeError(f"the server did not start: {self.log.read()}")

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def megabytes(self) -> float:
        """The memory that its processes hold now, what they share counted once."""
        return sum(_proportional(process) for process in _family(self.process.pid)) / 1024

    def count(self, name: str) -> float:
        """A number of /metrics."""
        with Connection(self.port) as connection:
            _, body = connection.send("GET", "/metrics")
        return sum(float(line.split()[-1]) for line in body.decode().splitlines() if line.startswith(name))


def _family(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [process, *(one for child in children for one in _family(int(child)))]


def _proportional(process: int) -> int:
    """KB that a process holds, and its part of those that it shares."""
    return int(Path(f"/proc/{process}/smaps_rollup").read_text().split("Pss:")[1].split()[0])
