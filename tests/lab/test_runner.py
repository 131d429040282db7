"""Experiments do what is missing, once, and go on after a kill."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.errors import SettingsError
from marsrec.lab.experiment import read_experiment
from marsrec.lab.results import read_results

GRID = """
[[runs]]
data = "{data}"
model = ["gru4rec", "mars-t"]
seed = [0, 1]
options = {{ length = 10, dim = 8 }}
training = {{ epochs = {epochs}, patience = 50, targets_per_batch = 64 }}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    path = tmp_path / "grid.toml"
    path.write_text(GRID.format(data=tmp_path / "shop.csv", epochs=2))
    return path


def invoke(*arguments: object) -> str:
    answer = CliRunner().invoke(app, list(map(str, arguments)))
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def folders(tmp_path: Path, name: str = "a") -> list[str]:
    return ["--results", str(tmp_path / f"results-{name}"), "--runs", str(tmp_path / f"runs-{name}")]


def test_a_grid_is_done_once(experiment: Path, tmp_path: Path) -> None:
    invoke("lab", "run", experiment, "--only", "mars-t*seed 1", *folders(tmp_path))
    states = [row["state"] for row in json.loads(invoke("lab", "status", experiment, "--json", *folders(tmp_path)))]
    assert states == ["missing", "missing", "missing", "done"]
    (first,) = (tmp_path / "results-a").glob("*.json")
    written = first.stat().st_mtime_ns
    invoke("lab", "run", experiment, *folders(tmp_path))
    assert first.stat().st_mtime_ns == written
    found = read_results(tmp_path / "results-a")
    assert sorted((r.model, r.training.seed) for r in found) == [
        ("gru4rec", 0),
        ("gru4rec", 1),
        ("mars-t", 0),
        ("mars-t", 1),
    ]
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 3"))
    states = {row["state"] for row in json.loads(invoke("lab", "status", experiment, "--json", *folders(tmp_path)))}
    assert states == {"missing"}  # another setting is another run


def test_several_workers_find_the_same(experiment: Path, tmp_path: Path) -> None:
    for name, workers in (("a", 1), ("b", 2)):
        invoke("lab", "run", experiment, "--only", "gru4rec", "--workers", workers, *folders(tmp_path, name))
    alone, together = (read_results(tmp_path / f"results-{name}") for name in ("a", "b"))
    assert [r.name for r in alone] == [r.name for r in together]
    assert [r.test for r in alone] == [r.test for r in together]


def test_a_killed_runner_goes_on_to_the_same_results(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 12"))
    command = [sys.executable, "-m", "marsrec", "lab", "run", str(experiment), "--only", "mars-t/seed 0"]
    killed = subprocess.Popen([*command, *folders(tmp_path)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs-a").glob("*.training/curve.csv")):  # an epoch is done
        assert killed.poll() is None or list((tmp_path / "runs-a").glob("*.training/curve.csv"))
        assert time.monotonic() < deadline
        time.sleep(0.02)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    for name in ("a", "b"):
        invoke("lab", "run", experiment, "--only", "mars-t/seed 0", *folders(tmp_path, name))
    (resumed,), (undisturbed,) = (read_results(tmp_path / f"results-{name}") for name in ("a", "b"))
    assert resumed.test == undisturbed.test
    assert len(resumed.curve) == len(undisturbed.curve) == 12


@pytest.mark.skipif(shutil.which("ps") is None, reason="needs ps to look for processes")
def test_workers_do_not_outlive_a_killed_runner(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 100000"))
    command = [sys.executable, "-m", "marsrec", "lab", "run", str(experiment), "--only", "gru4rec", "--workers", "2"]
    runner = subprocess.Popen([*command, *folders(tmp_path)], stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "runs-a").glob("*.training/curve.csv"))) < 2:  # both workers are at work
        assert runner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    runner.send_signal(signal.SIGKILL)
    runner.wait()
    while _members(runner.pid):
        assert time.monotonic() < deadline, "workers go on"
        time.sleep(0.1)


def _members(session: int) -> list[int]:
    """Processes of a session that are neither gone nor waiting to be collected."""
    found = subprocess.run(["ps", "-e", "-o", "pid=,sid=,stat="], capture_output=True, text=True, check=True)
    rows = (line.split() for line in found.stdout.splitlines())
    return [int(pid) for pid, sid, stat in rows if int(sid) == session and not stat.startswith("Z")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("runs = 3", "runs: Input should be a valid list"),
        ("[[runs]]\ndata = 'x'\nmodle = 'y'", "modle: Extra inputs"),
        ("[[runs]", "not TOML"),
        ("[[runs]]\ndata = 'x'\nmodel = 'y'\ntraining = { epoch = 3 }", "epoch: Extra inputs"),
    ],
)
def test_bad_experiments_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_experiment(path)
