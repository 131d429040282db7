"""The nth operation of each writer fails, for every n: what is there afterwards is the old or the new one, whole."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch
from tests.attacks.faults import Disk, every_fault, injected

from marsrec import Recommender, TrainingSettings
from marsrec.atomic import atomic_file, atomic_folder, recover
from marsrec.data.histories import Histories
from marsrec.data.log import read_log
from marsrec.errors import DataError
from marsrec.lab.inspection import inspect
from marsrec.lab.results import RANKS, read_results, record
from marsrec.recommender.persistence import CONFIG
from marsrec.training.checkpoints import SafetensorsIO


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Faults count fsync, and nobody cuts the power of a test."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


def told(writer: str, faults: int) -> None:
    print(f"\n{writer}: {faults} faults")


def frame(users: int = 8) -> pl.DataFrame:
    rows = [(u, f"i{(u + i) % 5}", 1_600_000_000 + 60 * i) for u in range(users) for i in range(6)]
    return pl.DataFrame(rows, schema=["user", "item", "time"], orient="row")


@pytest.fixture(scope="module")
def model() -> Recommender:
    made = Recommender("mars-t", options={"dim": 8, "length": 8}, training=TrainingSettings(epochs=1))
    return made.fit(frame(), progress=False)


def nothing_beside(folder: Path, *names: str) -> None:
    if sys.platform == "win32":  # where a folder cannot be locked, and so nothing is taken for left behind
        return
    assert sorted(place.name for place in folder.iterdir()) == sorted(names)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "here" / "note.txt"

    def write(text: str) -> None:
        with atomic_file(path) as temporary:
            temporary.write_text(text)

    def prepare() -> None:
        shutil.rmtree(path.parent, ignore_errors=True)
        write("the old one")

    def check(done: bool) -> None:
        assert path.read_text() in (["the new one"] if done else ["the old one", "the new one"])
        write("the next one")
        nothing_beside(path.parent, "note.txt")

    told("atomic_file", every_fault(prepare, lambda: write("the new one"), check))


def test_names_are_on_the_disk_before_a_write_returns(tmp_path: Path) -> None:
    """The file before its name, and the name last of all; of a folder also what is in it."""
    path, disk = tmp_path / "note.txt", Disk()
    path.write_text("old")
    with injected(disk), atomic_file(path) as temporary:
        temporary.write_text("new")
    assert disk.operations[-4:] == ["fsync", "replace", "fsync", "rmdir"] or sys.platform == "win32"
    disk = Disk()
    with injected(disk), atomic_folder(tmp_path / "model", "mark") as folder:
        (folder / "mark").write_text("new")
    end = ["fsync", "fsync", "rename", "fsync"]  # the file, the folder, its new name
    assert [operation for operation in disk.operations if operation in end][-4:] == end or sys.platform == "win32"


def test_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "note.txt"

    def write() -> None:
        with atomic_file(path) as temporary:
            temporary.write_text("whole")

    def check(done: bool) -> None:
        assert path.exists() or not done
        assert not path.exists() or path.read_text() == "whole"
        write()
        nothing_beside(path.parent, "note.txt")

    told("atomic_file, new", every_fault(lambda: shutil.rmtree(tmp_path / "a", ignore_errors=True), write, check))


def test_a_saved_model(tmp_path: Path, model: Recommender) -> None:
    folder = tmp_path / "models" / "mine"
    model.metrics["mark"] = "old"
    model.save(tmp_path / "old")
    model.metrics["mark"] = "new"
    model.save(tmp_path / "new")
    old, new = content(tmp_path / "old"), content(tmp_path / "new")

    def prepare() -> None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(tmp_path / "old", folder)

    def check(done: bool) -> None:
        recover(folder)
        assert content(folder) in ([new] if done else [old, new])
        with atomic_folder(folder, CONFIG):
            pass
        nothing_beside(folder.parent, "mine")

    told("Recommender.save", every_fault(prepare, lambda: model.save(folder), check))


def test_prepared_histories(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "mine"
    old, new = (Histories.from_log(read_log(frame(users))) for users in (8, 9))

    def prepare() -> None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        old.save(folder)

    def check(done: bool) -> None:
        assert Histories.is_prepared(folder)
        loaded = Histories.load(folder)
        whole = new if len(loaded) == len(new) else old
        np.testing.assert_array_equal(loaded.items, whole.items)
        assert whole is new or not done
        old.save(folder)
        nothing_beside(folder.parent, "mine")

    told("Histories.save", every_fault(prepare, lambda: new.save(folder), check))


def test_a_checkpoint(tmp_path: Path) -> None:
    folder, files = tmp_path / "run", SafetensorsIO()
    path = folder / "state.safetensors"

    def write(epoch: int) -> None:
        files.save_checkpoint({"weights": torch.full((64,), float(epoch)), "epoch": epoch}, path)

    def prepare() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        write(1)

    def check(done: bool) -> None:
        state = files.load_checkpoint(path)
        assert state["epoch"] in ([2] if done else [1, 2])
        assert state["weights"].tolist() == [float(state["epoch"])] * 64
        write(3)
        nothing_beside(folder, "state.safetensors")

    told("checkpoint", every_fault(prepare, lambda: write(2), check))


def test_a_result_of_the_lab(tmp_path: Path, model: Recommender, monkeypatch: pytest.MonkeyPatch) -> None:
    run, results = tmp_path / "run", tmp_path / "results"
    model.save(run)
    # Reading and computing are not what fails here.
    evaluation, inspection = model.evaluate(), inspect(model)
    monkeypatch.setattr("marsrec.lab.results.Recommender.load", lambda folder: model)
    monkeypatch.setattr("marsrec.lab.results.inspect", lambda recommender: inspection)
    monkeypatch.setattr(model, "evaluate", lambda part: evaluation)

    def check(done: bool) -> None:
        found = read_results(results)
        assert found or not done
        for result in found:  # a run with a result counts as done: all that belongs to it is there
            pl.read_parquet(results / RANKS / f"{result.name}.parquet")
        path = record(run, results, "mine")
        nothing_beside(results / RANKS, f"{path.stem}.parquet")
        assert not list(results.rglob(".*"))

    faults = every_fault(
        lambda: shutil.rmtree(results, ignore_errors=True), lambda: record(run, results, "mine"), check
    )
    told("lab result", faults)


def test_a_folder_that_was_moved_aside_is_put_back_by_whoever_looks(tmp_path: Path, model: Recommender) -> None:
    """As a process leaves it that is killed between the two renames."""
    for look in (Recommender.load, lambda folder: model.save(folder)):
        folder = tmp_path / "mine"
        model.save(folder)
        shutil.copytree(folder, tmp_path / ".mine.0123abcd")
        folder.rename(tmp_path / ".mine.0123abcd.old")
        (tmp_path / ".mine.not-ours.old").mkdir(exist_ok=True)
        look(folder)
        assert Recommender.load(folder).histories is not None
    nothing_beside(tmp_path, "mine", ".mine.not-ours.old")
    with pytest.raises(DataError, match="there is no such folder"):
        Recommender.load(tmp_path / "other")


KILLED = """
import os, shutil, signal, sys
from pathlib import Path
from marsrec.atomic import atomic_folder

rename = Path.rename

def and_die(self, target):
    rename(self, target)
    os.kill(os.getpid(), signal.SIGKILL)

source, folder = map(Path, sys.argv[1:])
with atomic_folder(folder, "config.json") as target:
    shutil.copytree(source, target, dirs_exist_ok=True)
    Path.rename = and_die
"""


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize("how", ["load", "save", "load while another process saves elsewhere"])
def test_a_process_killed_between_the_two_renames(tmp_path: Path, model: Recommender, how: str) -> None:
    folder, other = tmp_path / "mine", tmp_path / "other"
    for place, mark in ((folder, "old"), (other, "new")):
        model.metrics["mark"] = mark
        model.save(place)
    ended = subprocess.run([sys.executable, "-c", KILLED, other, folder], check=False)
    assert ended.returncode == -signal.SIGKILL
    assert not folder.exists()
    assert len([place for place in tmp_path.iterdir() if place.name.startswith(".mine.")]) == 2
    if how == "save":
        model.save(folder)
        nothing_beside(tmp_path, "mine", "other")
    elif how == "load":
        assert Recommender.load(folder).metrics["mark"] == "old"
    else:
        with atomic_folder(other, "config.json") as target:
            shutil.copytree(folder.with_name("other"), target, dirs_exist_ok=True)
            assert Recommender.load(folder).metrics["mark"] == "old"
    model.save(folder)
    nothing_beside(tmp_path, "mine", "other")


def test_a_folder_in_use_is_not_swept_away(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "mine", "mark") as slow:
        (slow / "mark").write_text("slow")
        with atomic_folder(tmp_path / "mine", "mark") as quick:
            (quick / "mark").write_text("quick")
        assert (tmp_path / "mine" / "mark").read_text() == "quick"
        assert (slow / "mark").exists()
    assert (tmp_path / "mine" / "mark").read_text() == "slow"
    nothing_beside(tmp_path, "mine")
