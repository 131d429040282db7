"""Disks that are full, and a database that stops."""

import contextlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import sqlalchemy as sa
import torch

from benchmarks.campaign.case import Kind, LostError, Outcome
from benchmarks.campaign.kills import holds
from benchmarks.campaign.material import START, log, model
from marsrec import Recommender
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.errors import MarsrecError
from marsrec.serve.store import Event, Store, Write
from marsrec.training.checkpoints import SafetensorsIO


class Disks(Kind):
    """A file system of some hundred kilobytes (as root on Linux), or a limit on the size of files."""

    name = "disk full"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.model = Recommender.load(model(folder / "model"))

    @classmethod
    def reason_against(cls) -> str | None:
        return "there are no limits of files on Windows" if sys.platform == "win32" else None

    def run(self, chance: Random, place: Path) -> Outcome:
        writers = (self.models, self.histories, self.checkpoints, self.store)
        with small_disk(place, chance.randrange(80, 1500) * 1024):
            return chance.choice(writers)(chance, place)

    def models(self, chance: Random, place: Path) -> Outcome:
        def save(number: int) -> None:
            self.model.metrics["mark"] = number
            self.model.save(place / "model")

        return until_full(chance, place, save, lambda: int(Recommender.load(place / "model").metrics["mark"]))

    def histories(self, chance: Random, place: Path) -> Outcome:
        made = [Histories.from_log(read_log(log(users=users))) for users in (20, 40, 60)]

        def read() -> int:
            found = Histories.load(place / "prepared")
            (number,) = (number for number, one in enumerate(made) if len(one) == len(found))
            if not np.array_equal(found.items, made[number].items):
                raise LostError("prepared histories are mixed")
            return number

        return until_full(chance, place, lambda number: made[number].save(place / "prepared"), read, len(made))

    def checkpoints(self, chance: Random, place: Path) -> Outcome:
        path, files = place / "state.safetensors", SafetensorsIO()

        def save(number: int) -> None:
            files.save_checkpoint({"weights": torch.full((8000,), float(number)), "epoch": number}, path)

        def read() -> int:
            state = files.load_checkpoint(path)
            if not bool((state["weights"] == state["epoch"]).all()):
                raise LostError("a checkpoint is of two epochs")
            return int(state["epoch"])

        return until_full(chance, place, save, read)

    def store(self, chance: Random, place: Path) -> Outcome:
        try:
            store = Store(f"sqlite:///{place / 'events.db'}", "s")
        except MarsrecError:
            return "refused"
        kept: dict[str, list[Event]] = {}
        refused = False
        for number in range(60):
            with contextlib.suppress(sa.exc.SQLAlchemyError, MarsrecError):
                post(store, chance, kept, 200)
                continue
            refused = True
            if number % 2:
                break
        holds(store, kept)
        store.close()
        if kept:
            store = Store(f"sqlite:///{place / 'events.db'}", "s")
            holds(store, kept)
            store.close()
        return "refused" if refused else "answered"


def event(chance: Random) -> Event:
    return Event(f"i{chance.randrange(50)}", START + chance.randrange(10**7))


def post(store: Store, chance: Random, kept: dict[str, list[Event]], most: int, of: str = "user") -> None:
    """Write events of one user, and note them once the store has said that it has them."""
    user = f"{of}{chance.randrange(4)}"
    events = [event(chance) for _ in range(chance.randrange(1, most))]
    writes: list[Write] = [(user, events)]
    (outcome,) = store.write(writes)
    if isinstance(outcome, Exception):
        raise outcome
    kept.setdefault(user, []).extend(events)


def until_full(chance: Random, place: Path, save, read, numbers: int = 1000) -> Outcome:  # type: ignore[no-untyped-def]
    """Write one state after the other, the disk ever fuller; each time the last one that was written is there."""
    last: int | None = None
    for step in range(6):
        number = step % numbers
        try:
            save(number)
            last = number
        except (OSError, MarsrecError) as error:
            if last is None:
                return "refused"
            if (found := read()) not in (last, number):
                raise LostError(f"{found} is there, {last} was the last to be written") from error
            return "refused"
        if read() != last:
            raise LostError(f"{read()} is there, {last} was the last to be written")
        with contextlib.suppress(OSError), (place / f"filling{step}").open("wb") as filling:
            filling.write(bytes(chance.randrange(200_000)))
    return "answered"


@contextlib.contextmanager
def small_disk(place: Path, size: int) -> Iterator[None]:
    """Make `place` a file system of so many bytes; without the right to mount, let no file outgrow a part of it."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
    if sys.platform == "linux" and os.geteuid() == 0 and not subprocess.run(mount, capture_output=True).returncode:
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
        return
    import resource

    before, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 8, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (before, hard))


class Databases(Kind):
    """A PostgreSQL of our own that is stopped at once while events are written, and started again."""

    name = "database stopped"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = folder / "cluster"
        self.data.mkdir()
        if self.as_owner:
            shutil.chown(self.data, "postgres", "postgres")
        for above in (folder, *folder.parents[:1]):
            above.chmod(above.stat().st_mode | 0o055)
        self.control("initdb", "-D", self.data, "-A", "trust", "-U", "marsrec")
        self.start()

    as_owner = hasattr(os, "geteuid") and os.geteuid() == 0

    @classmethod
    def reason_against(cls) -> str | None:
        missing = [name for name in ("initdb", "pg_ctl") if shutil.which(name) is None]
        if os.environ.get("MARSREC_TEST_POSTGRES") is None:
            return "MARSREC_TEST_POSTGRES is not set"
        return f"{' and '.join(missing)} of PostgreSQL are not there" if missing else None

    def control(self, *command: object) -> None:
        owner = ["runuser", "-u", "postgres", "--"] if self.as_owner else []
        done = subprocess.run(
            [*owner, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=self.data
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}")

    def start(self) -> None:
        options = f"-k {self.data} -c listen_addresses='' -c max_connections=30"
        self.control("pg_ctl", "-D", self.data, "-w", "-o", options, "-l", self.data / "log", "start")

    def close(self) -> None:
        self.control("pg_ctl", "-D", self.data, "-m", "immediate", "stop")

    def run(self, chance: Random, place: Path) -> Outcome:
        store = Store(f"postgresql://marsrec@/postgres?host={self.data}", "s")
        kept: dict[str, list[Event]] = {}
        refused, stopping = False, threading.Timer(chance.uniform(0, 0.3), self.close)
        stopping.start()
        try:
            while not refused:
                try:
                    post(store, chance, kept, 4, of=f"{place.name}-")
                except (sa.exc.SQLAlchemyError, MarsrecError):
                    refused = True
        finally:
            stopping.join()
            self.start()
        holds(store, kept)  # by the same store: it finds the database again
        store.close()
        return "refused"
