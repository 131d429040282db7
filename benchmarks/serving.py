"""The server under load by wrk, on the same cores: throughput, waiting, overload, memory, model swap.

`python -m benchmarks.serving [PART …] [--recipe mars-t] [--workers N] [--quick]`; all parts take a quarter of an hour.
A server with cores of its own does better. Beside the milliseconds stand ratios to `/healthz` in the same run, which
hold on other machines.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import polars as pl
import torch

from benchmarks.measure import show
from benchmarks.wrk import NUMBER, Asked, Connection, Load, Server, Wrk, load, middle
from marsrec import Recommender, TrainingSettings
from marsrec.data.histories import Vocabulary

START = 1_700_000_000
EVENTS = 30
ITEMS = 12_101
MILLION = 1_000_000
USERS = 1000
CLIENTS = (1, 8, 64)
RUNS = 3
HEALTH: Asked = ("GET", "/healthz", "")


def model(root: Path, items: int, recipe: str) -> Path:
    """A saved model with random weights: what exact ranking costs does not depend on what was learned.

    An index gains from items that lie in clusters, as trained ones do; these lie in a thousand.
    """
    if (folder := root / f"{recipe}-{items}").is_dir():
        return folder
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
        table[0] = 0
    recommender.item_ids = Vocabulary(pl.Series(np.arange(items)))
    recommender.item_counts = np.append(0, rng.integers(1, 1000, items))
    recommender.save(folder, histories=False)
    return folder


def events(rng: np.random.Generator, items: int) -> list[dict[str, int]]:
    times = START + rng.integers(1, 10**5, EVENTS).cumsum()
    return [{"item": int(i), "time": int(t)} for i, t in zip(rng.integers(0, items, EVENTS), times, strict=True)]


def given(items: int) -> list[Asked]:
    """Requests with histories."""
    rng = np.random.default_rng(1)
    return [("POST", "/v1/recommend", json.dumps({"history": events(rng, items), "k": 10})) for _ in range(200)]


def stored() -> list[Asked]:
    """Requests for users."""
    order = np.random.default_rng(2).permutation(USERS)
    return [("GET", f"/v1/users/user{user}/recommendations?k=10", "") for user in order]


def posts() -> list[Asked]:
    """An event of each user, of another time whenever it is sent."""
    rng = np.random.default_rng(3)
    body = '{{"events":[{{"item":{},"time":' + NUMBER + "}}]}}"
    return [
        ("POST", f"/v1/users/user{user}/events", body.format(rng.integers(ITEMS))) for user in rng.permutation(USERS)
    ]


def fill(server: Server, users: int = USERS) -> None:
    """Give every user a history."""
    rng = np.random.default_rng(4)
    with Connection(server.port) as connection:
        for user in range(users):
            connection.json("POST", f"/v1/users/user{user}/events", {"events": events(rng, ITEMS)})


class Posting:
    """Events posted a hundred times a second, beside something else."""

    began = 0

    def __init__(self, server: Server, seconds: float) -> None:
        Posting.began += 10**6
        number = START + 10**8 + Posting.began
        self.wrk = Wrk(server.port, posts(), 11, seconds, every_ms=100, number=number)

    def result(self) -> Load:
        return self.wrk.result()


def start(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    rows = []
    for recipe in recipes:
        for _ in range(2):  # the first reads files into memory, and may compile kernels
            with Server(model(root, ITEMS, recipe), *options) as server:
                before = server.megabytes()
                load(server.port, given(ITEMS), 8, 1)
                row = [
                    recipe,
                    f"{server.healthy:.1f}",
                    f"{server.ready:.1f}",
                    f"{before:.0f}",
                    f"{server.megabytes():.0f}",
                ]
        rows.append(row)
    columns = ["recipe", "s to /healthz", "s to /v1/model", "MB", "MB after load"]
    show("From the start of the command", columns, rows)


def throughput(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    seconds, runs = (1.0, 1) if quick else (2.0, RUNS)
    for recipe in recipes:
        rows = []
        with Server(model(root, ITEMS, recipe), *options) as server:
            fill(server)
            kinds = {"/healthz": [HEALTH], "histories": given(ITEMS), "users": stored(), "users, posts": stored()}
            for kind in ("histories", "users"):
                load(server.port, kinds[kind], 8, 1)
            for clients in CLIENTS:
                seen: dict[str, list[Load]] = {kind: [] for kind in kinds}
                posted = []
                for _ in range(runs):
                    for kind, asked in kinds.items():
                        beside = Posting(server, seconds + 1) if "posts" in kind else None
                        seen[kind].append(load(server.port, asked, clients, seconds))
                        if beside:
                            posted.append(beside.result())
                health = middle(seen["/healthz"])
                for kind, all_runs in seen.items():
                    result = middle(all_runs)
                    about = f", {middle(posted).rate:.0f}/s" if "posts" in kind else ""
                    rows.append([f"{kind}{about}", str(clients), *_columns(result, health)])
        columns = ["asked for", "clients", "requests/s", "p50 ms", "p99 ms", "rate : health", "p50 : health", "wrong"]
        caption = f"{ITEMS:,} items, {EVENTS} events, k = 10; medians of {runs} runs. {' '.join(options)}"
        show(f"Recommendations by {recipe}", columns, rows, caption)


def _columns(result: Load, health: Load) -> list[str]:
    ratios = f"{result.rate / health.rate:.2f}", f"{result.p50 / health.p50:.1f}"
    return [f"{result.rate:,.0f}", f"{result.p50:.2f}", f"{result.p99:.1f}", *ratios, str(result.wrong + result.broken)]


def latency(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    """From a posted event to the recommendation that knows it; users of 200 events take turns."""
    rows, rng = [], np.random.default_rng(5)
    count = 100 if quick else 500
    for recipe in recipes:
        folder = model(root, ITEMS, recipe)
        with Server(folder, *options) as server, Connection(server.port) as connection:
            for user in range(20):
                own = [{"item": int(i), "time": START + 60 * n} for n, i in enumerate(rng.integers(0, ITEMS, 200))]
                connection.json("POST", f"/v1/users/user{user}/events", {"events": own})
            taken, bare, health = [], [], []
            with (folder.parent / "bare").open("wb") as file:
                for turn in range(count + 50):
                    place = f"/v1/users/user{turn % 20}"
                    event = {"item": int(rng.integers(ITEMS)), "time": START + 10**6 + turn}
                    began = time.perf_counter()
                    connection.send("POST", f"{place}/events", {"events": [event]})
                    status, _ = connection.send("GET", f"{place}/recommendations?k=10")
                    taken.append(time.perf_counter() - began)
                    assert status == 200
                    file.write(bytes(8192))  # about what the log of the store takes for an event
                    file.flush()
                    began = time.perf_counter()
                    os.fsync(file.fileno())
                    bare.append(time.perf_counter() - began)
                    began = time.perf_counter()
                    connection.send("GET", "/healthz")
                    health.append(time.perf_counter() - began)
        p50, p99, disk, other = (
            1e3 * float(np.quantile(values[50:], share))
            for values, share in ((taken, 0.5), (taken, 0.99), (bare, 0.5), (health, 0.5))
        )
        rows.append(
            [
                recipe,
                f"{p50:.2f}",
                f"{p99:.2f}",
                f"{disk:.2f}",
                f"{p50 - disk:.2f}",
                f"{other:.2f}",
                f"{(p50 - disk) / other:.1f}",
            ]
        )
    columns = ["recipe", "p50 ms", "p99 ms", "bare fsync", "p50 - fsync", "/healthz", "ratio"]
    show(
        "From a posted event to the recommendation that knows it",
        columns,
        rows,
        "Two requests, from a client in Python.",
    )


def million(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    rows = []
    for recipe in recipes:
        for extra in ([], ["--ann-from", "1"]):
            with Server(model(root, MILLION, recipe), *options, *extra) as server:
                with Connection(server.port) as connection:
                    index = connection.json("GET", "/v1/model")["model"]["index"]
                ranked = "exactly" if index is None else f"by index, recall {index['recall']:.3f}"
                asked = given(MILLION)
                load(server.port, asked, 8, 1)
                for clients in CLIENTS:
                    health = middle([load(server.port, [HEALTH], clients, 1) for _ in range(1 if quick else RUNS)])
                    runs = [load(server.port, asked, clients, 2) for _ in range(1 if quick else RUNS)]
                    rows.append([recipe, ranked, str(clients), *_columns(middle(runs), health)])
                rows[-1].append(f"{server.megabytes():.0f}")
                rows[-2].append("")
                rows[-3].append("")
    columns = [
        "recipe",
        "ranked",
        "clients",
        "requests/s",
        "p50 ms",
        "p99 ms",
        "rate : health",
        "p50 : health",
        "wrong",
        "MB",
    ]
    show(f"A million items, histories of {EVENTS} events", columns, rows)


def overload(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    """Clients that each send four times a second, and more and more of them; then some that never wait."""
    rows, seconds, pause = [], 3 if quick else 6, 250
    for recipe in recipes:
        with Server(model(root, ITEMS, recipe), *options, "--requests", "64") as server:
            asked = given(ITEMS)
            load(server.port, asked, 8, 2)
            best = max(load(server.port, asked, clients, 3).rate for clients in (16, 32, 64))
            rows.append([recipe, "best", "16 to 64", f"{best:,.0f}", *[""] * 6])
            for times in (0.5, 1, 2, 4, 0.5, None):
                offered = "no end" if times is None else f"{times * best:,.0f}"
                clients = 128 if times is None else int(times * best * pause / 1000)
                every = 0 if times is None else pause
                result = load(server.port, asked, clients, seconds, every_ms=every, count=True)
                good, refused = result.answered / result.seconds, result.refused / result.seconds
                rates = f"{good:,.0f}", f"{good / best:.2f}", f"{refused:,.0f}", str(result.others + result.broken)
                waits = f"{result.p50:.1f}", f"{result.p99:.1f}", f"{server.megabytes():.0f}"
                rows.append([recipe, offered, str(clients), *rates, *waits])
    columns = ["recipe", "offered/s", "clients", "200/s", ": best", "503/s", "others", "p50 ms", "p99 ms", "MB"]
    show("Overload: a server that takes 64 requests at a time", columns, rows)


def memory(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    requests = 5_000 if quick else 100_000
    for recipe in recipes:
        with Server(model(root, ITEMS, recipe), *options) as server:
            fill(server)
            for asked in (given(ITEMS), stored()):
                load(server.port, asked, 16, 2)
            Posting(server, 2).result()
            before, done, began = server.megabytes(), 0.0, time.perf_counter()
            while done < requests:
                beside = Posting(server, 6)
                for asked in (given(ITEMS), stored()):
                    result = load(server.port, asked, 16, 3)
                    assert not result.wrong + result.broken
                    done += result.rate * result.seconds
                beside.result()
            minutes, after = (time.perf_counter() - began) / 60, server.megabytes()
            print(
                f"\n{recipe}: {before:.0f} MB, then {after:.0f} MB after {done:,.0f} requests in {minutes:.1f} minutes."
            )


def swaps(root: Path, options: list[str], quick: bool, recipes: list[str]) -> None:
    """Put another model into the folder and have it loaded, again and again, under load."""
    times = 3 if quick else 20
    for recipe in recipes:
        folder = Path(shutil.copytree(model(root, ITEMS, recipe), root / "swapped"))
        with Server(folder, *options) as server:
            other = Recommender.load(folder)
            running = Wrk(server.port, given(ITEMS), 8, 2.0 * times, count=True)
            waited = []
            with Connection(server.port) as connection:
                for _ in range(times):
                    with torch.no_grad():
                        other.network.items.weight.mul_(1.01)
                    other.save(folder, histories=False)
                    began = time.perf_counter()
                    connection.json("POST", "/v1/model/reload")
                    waited.append(time.perf_counter() - began)
                    time.sleep(max(0.0, 1.5 - waited[-1]))
            result = running.result()
            print(
                f"\n{recipe}: {times} swaps of {median(waited):.1f} s under the load of 8 clients: {result.answered:,} "
                f"answers of 200, {result.refused} of 503, {result.others + result.broken} others."
            )
        shutil.rmtree(folder)


PARTS = {part.__name__: part for part in (start, throughput, latency, million, overload, memory, swaps)}


def main(parts: tuple[str, ...] = (), recipes: tuple[str, ...] = (), workers: int = 0, quick: bool = False) -> None:
    torch.set_num_threads(1)
    root = Path(tempfile.mkdtemp())
    try:
        for name in parts or PARTS:
            options = ["--workers", str(workers)] if workers else []
            usual = ["mars-m"] if name in ("million", "overload", "memory", "swaps") else ["mars-t", "mars-m"]
            PARTS[name](root, options, quick, list(recipes) or usual)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--recipe", action="append", default=[])
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--quick", action="store_true")
    chosen = parser.parse_args()
    main(tuple(chosen.parts), tuple(chosen.recipe), chosen.workers, chosen.quick)
