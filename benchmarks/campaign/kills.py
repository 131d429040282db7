"""Trainings, grids of runs and servers that are killed at a random moment, and go on."""

import hashlib
import json
import shutil
import threading
import time
from pathlib import Path
from random import Random

from safetensors.torch import load_file

from benchmarks.campaign import children
from benchmarks.campaign.case import Kind, LostError, Outcome, finished, killed_after
from benchmarks.campaign.material import START, log, model
from benchmarks.campaign.running import Server
from marsrec import Recommender
from marsrec.recommender.persistence import WEIGHTS, as_bytes
from marsrec.serve.store import Event, Store

EPOCHS = 6


def digest(folder: Path) -> str:
    """Of a saved model's weights."""
    found = hashlib.sha256()
    for name, value in sorted(load_file(folder / WEIGHTS).items()):
        found.update(name.encode() + as_bytes(value))
    return found.hexdigest()


class Fits(Kind):
    name = "fit killed"
    share = 2.0
    models = ("mars-t", "gru4rec", "hawkes-t")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.log = folder / "log.csv"
        log().write_csv(self.log)
        self.expected: dict[str, tuple[str, float]] = {}

    def command(self, name: str, out: Path, *more: str) -> tuple[str, ...]:
        settings = ("--set", "dim=8", "--set", "length=8", "--epochs", str(EPOCHS), "--patience", "50")
        return ("fit", str(self.log), "--model", name, *settings, "--out", str(out), *more)

    def run(self, chance: Random, place: Path) -> Outcome:
        name, out = chance.choice(self.models), place / "model"
        if name not in self.expected:
            whole = self.folder / name
            started = time.monotonic()
            finished(children.command, *self.command(name, whole))
            self.expected[name] = digest(whole), time.monotonic() - started
        expected, seconds = self.expected[name]
        state = out.with_name("model.training")
        for _ in range(chance.choice((1, 1, 2))):
            if not out.exists():
                resume = ["--resume"] * state.exists()
                killed_after(chance.uniform(0, 1.1 * seconds), children.command, *self.command(name, out, *resume))
        if not out.exists():
            finished(children.command, *self.command(name, out, *["--resume"] * state.exists()))
        if digest(out) != expected:
            raise LostError(f"{name}: the weights are others than those of a training that nobody killed")
        Recommender.load(out)
        return "answered"


GRID = """
[[runs]]
data = "{data}"
model = "{model}"
seed = [0, 1]
options = {{ length = 8, dim = 8 }}
training = {{ epochs = 3, patience = 50, targets_per_batch = 64 }}
"""


class Labs(Kind):
    name = "lab killed"
    share = 1.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        log().write_csv(folder / "shop.csv")
        self.grid = folder / "grid.toml"
        self.grid.write_text(GRID.format(data=folder / "shop.csv", model="mars-t"))
        started = time.monotonic()
        finished(children.command, *self.command(folder))
        self.seconds, self.expected = time.monotonic() - started, self.results(folder)

    def command(self, place: Path) -> tuple[str, ...]:
        return ("lab", "run", str(self.grid), "--results", str(place / "results"), "--runs", str(place / "runs"))

    def results(self, place: Path) -> dict[str, object]:
        found = {file.name: json.loads(file.read_text()) for file in (place / "results").glob("*.json")}
        return {name: (result["valid"], result["test"], result["best_epoch"]) for name, result in found.items()}

    def run(self, chance: Random, place: Path) -> Outcome:
        killed_after(chance.uniform(0, self.seconds), children.command, *self.command(place))
        finished(children.command, *self.command(place))
        if (found := self.results(place)) != self.expected:
            raise LostError(f"results are {found}, undisturbed {self.expected}")
        if left := [file.name for file in (place / "results").rglob(".*")]:
            raise LostError(f"left behind: {left}")
        return "answered"


class Serves(Kind):
    name = "serve killed"
    share = 1.5

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = model(folder / "model")

    def run(self, chance: Random, place: Path) -> Outcome:
        path = place / "events.db"
        server = Server(self.model, str(path))
        try:
            server.ready()
            kept: dict[str, list[Event]] = {}
            killer = threading.Timer(chance.uniform(0, 0.5), server.kill)
            killer.start()
            try:
                while True:
                    user = f"user{chance.randrange(5)}"
                    events = [
                        Event(f"i{chance.randrange(11)}", START + chance.randrange(10**6))
                        for _ in range(chance.randrange(1, 4))
                    ]
                    body = {"events": [{"item": event.item, "time": event.time} for event in events]}
                    server.request(f"/v1/users/{user}/events", body)
                    kept.setdefault(user, []).extend(events)
            except OSError:  # killed
                killer.join()
            server.start()
            server.ready()
            for user in kept:
                server.request(f"/v1/users/{user}/recommendations")
        finally:
            chance.choice((server.kill, server.close))()
        check(path, kept)
        shutil.rmtree(place)
        return "answered"


def check(path: Path, kept: dict[str, list[Event]]) -> None:
    """Raise unless all that was acknowledged is there, once."""
    store = Store(f"sqlite:///{path}", "s")
    try:
        holds(store, kept)
    finally:
        store.close()


def holds(store: Store, kept: dict[str, list[Event]]) -> None:
    for user, events in kept.items():
        found = store.events(user)
        if missing := set(events) - set(found):
            raise LostError(f"{user}: {len(missing)} of {len(set(events))} acknowledged events are gone")
        if len(found) != len(set(found)):
            raise LostError(f"{user}: events are there twice")
