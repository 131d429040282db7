"""A runner that is killed or interrupted leaves what goes on to the same results, and no process behind."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import polars as pl
import pytest
from tests.lab.running import Endless, folders, invoke, places
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.lab import runner
from marsrec.lab.results import read_results
from marsrec.training.settings import CHECKPOINT

ROOT = Path(__file__).parents[2]


def test_a_killed_runner_goes_on_to_the_same_results(experiment: Path, tmp_path: Path) -> None:
    """Killed in the middle of the second run of a grid: the first stays, the second goes on, the others follow."""
    first, second = (
        experiment.read_text().replace('["gru4rec", "mars-t"]', name) for name in ('"gru4rec"', '"mars-t"')
    )
    experiment.write_text((first + second.replace("epochs = 2", "epochs = 20")).replace("[0, 1]", "0"))
    (_, first), (_, second) = places(experiment, tmp_path)
    command = [sys.executable, "-m", "marsrec", "lab", "run", str(experiment), *folders(tmp_path)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process: sums are taken in the same order
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=one_thread)
    deadline = time.monotonic() + 120
    while len(second.curve()) < 2:
        assert killed.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.kill()
    killed.wait()
    assert [first.progress(), second.progress()] == ["done", "begun"]
    assert not second.result.exists()
    assert (second.state / CHECKPOINT).exists()
    before, written = second.curve(), first.result.stat().st_mtime_ns
    assert 2 <= len(before) < 20
    for name in ("a", "b"):
        invoke("lab", "run", experiment, *folders(tmp_path, name))
    assert first.result.stat().st_mtime_ns == written
    resumed, undisturbed = (read_results(tmp_path / f"results-{name}") for name in ("a", "b"))
    assert [r.name for r in resumed] == [r.name for r in undisturbed] == sorted([first.name, second.name])
    for mine, other in zip(resumed, undisturbed, strict=True):
        assert (mine.valid, mine.test, mine.best_epoch) == (other.valid, other.test, other.best_epoch)
        assert [row["train/loss"] for row in mine.curve] == [row["train/loss"] for row in other.curve]
        ranks = [pl.read_parquet(tmp_path / f"results-{name}" / "ranks" / f"{mine.name}.parquet") for name in "ab"]
        assert ranks[0].equals(ranks[1])
        assert ranks[0].height == 20
    seconds = [row["seconds"] for row in next(r for r in resumed if r.name == second.name).curve]
    assert seconds[: len(before)] == [row["seconds"] for row in before]  # went on, and did not begin anew


RUNNER = """
import sys
from pathlib import Path
from tests.lab.running import Endless
from marsrec.lab.experiment import Run
from marsrec.lab.runner import run_all
folder = Path(sys.argv[1])
run_all([(Run(data="any", model="sasrec"), Endless("endless", folder, folder))], workers=2)
"""


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="asks /proc")
def test_workers_do_not_outlive_a_killed_runner(tmp_path: Path) -> None:
    killed = subprocess.Popen([sys.executable, "-c", RUNNER, str(tmp_path)], cwd=ROOT, stderr=subprocess.DEVNULL)
    place = Endless("endless", tmp_path, tmp_path)
    deadline = time.monotonic() + 120
    while not place.visitor.exists() or not place.visitor.read_text():
        assert killed.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.02)
    worker = int(place.visitor.read_text())
    assert worker != killed.pid
    assert is_alive(worker)
    killed.kill()
    killed.wait()
    while is_alive(worker):
        assert time.monotonic() < deadline, "the worker goes on"
        time.sleep(0.02)


def is_alive(process: int) -> bool:
    """Whether a process is neither gone nor waiting to be collected."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C is no signal there")
def test_ctrl_c_stops_all_workers_at_once(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = [Endless(place.name, place.runs, place.results) for _, place in places(experiment, tmp_path)]
    by_name = {place.name: place for place in chosen}
    found = runner.place_of
    monkeypatch.setattr(runner, "place_of", lambda *arguments: by_name[found(*arguments).name])
    before: list[str] = []

    def interrupt() -> None:
        deadline = time.monotonic() + 120
        while sum(place.visitor.exists() for place in chosen) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        before.extend(place.progress() for place in chosen)
        os.kill(os.getpid(), signal.SIGINT)

    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # processes of pytest-xdist ignore it
    try:
        threading.Thread(target=interrupt).start()
        answer = CliRunner().invoke(app, ["lab", "run", str(experiment), "--workers", "2", *folders(tmp_path)])
    finally:
        signal.signal(signal.SIGINT, usual)
    assert before.count("running") == 2
    assert answer.exit_code == 130
    assert "Stopped. The same command goes on." in answer.stderr
    assert [place.progress() for place in chosen] == ["missing"] * 4


def test_ctrl_c_stops_runs_that_take_turns(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def interrupted(run: object, *arguments: object, **options: object) -> bool:
        begun.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("marsrec.lab.runner.in_time", interrupted)
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), *folders(tmp_path)])
    assert answer.exit_code == 130
    assert len(begun) == 1
