"""Experiments do what is missing, once, and go on after a kill."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import polars as pl
import pytest
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.errors import MarsrecError, SettingsError
from marsrec.lab.experiment import Run, read_experiment
from marsrec.lab.results import inspection_of, read_results
from marsrec.lab.runner import Place, place_of, recommender_of, run_all, source_of
from marsrec.training.fit import CHECKPOINT

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


def places(experiment: Path, tmp_path: Path) -> list[tuple[Run, Place]]:
    runs = read_experiment(experiment).runs
    return [(run, place_of(run, tmp_path / "runs-a", tmp_path / "results-a")) for run in runs]


def states(experiment: Path, tmp_path: Path) -> list[str]:
    status = json.loads(invoke("lab", "status", experiment, "--json", *folders(tmp_path)))
    return [row["state"] for row in status["runs"]]


def test_a_grid_is_done_once(experiment: Path, tmp_path: Path) -> None:
    invoke("lab", "run", experiment, "--only", "mars-t*seed 1", *folders(tmp_path))
    assert states(experiment, tmp_path) == ["missing", "missing", "missing", "done"]
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
    assert states(experiment, tmp_path) == ["missing"] * 4  # another setting is another run


def test_several_workers_find_the_same(experiment: Path, tmp_path: Path) -> None:
    for name, workers in (("a", 1), ("b", 2)):
        invoke("lab", "run", experiment, "--only", "gru4rec", "--workers", workers, *folders(tmp_path, name))
    alone, together = (read_results(tmp_path / f"results-{name}") for name in ("a", "b"))
    assert [r.name for r in alone] == [r.name for r in together]
    assert [r.test for r in alone] == [r.test for r in together]


def test_a_killed_runner_goes_on_to_the_same_results(experiment: Path, tmp_path: Path) -> None:
    """Killed in the middle of the second run of a grid: the first stays, the second goes on, the others follow."""
    text = experiment.read_text().replace("epochs = 2", "epochs = 40").replace("[0, 1]", "0")
    experiment.write_text(text)
    (_, first), (_, second) = places(experiment, tmp_path)
    command = [sys.executable, "-m", "marsrec", "lab", "run", str(experiment), *folders(tmp_path)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process: sums are taken in the same order
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=one_thread)
    deadline = time.monotonic() + 120
    while len(second.curve()) < 2:
        assert killed.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert [first.progress(), second.progress()] == ["done", "begun"]
    assert not second.result.exists()
    assert (second.state / CHECKPOINT).exists()
    before, written = second.curve(), first.result.stat().st_mtime_ns
    assert 2 <= len(before) < 40
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


def test_a_ray_cluster_finds_the_same(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    invoke("lab", "run", experiment, "--only", "seed 0", *folders(tmp_path, "a"))
    invoke("lab", "run", experiment, "--only", "seed 0", "--ray", "local", *folders(tmp_path, "b"))
    alone, there = (read_results(tmp_path / f"results-{name}") for name in ("a", "b"))
    assert [r.name for r in alone] == [r.name for r in there]
    assert [r.test for r in alone] == [r.test for r in there]
    for kind in ("ranks", "inspections"):
        written = [sorted(p.name for p in (tmp_path / f"results-{name}" / kind).iterdir()) for name in ("a", "b")]
        assert written[0] == written[1]


def test_no_cluster_where_one_was_named(experiment: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), "--ray", "auto", *folders(tmp_path)])
    assert answer.exit_code != 0
    assert "--ray auto: no Ray cluster there" in str(answer.exception)


def test_data_of_several_densities(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    path = tmp_path / "grid.toml"
    path.write_text(
        f"""
        [[runs]]
        data = "{tmp_path / "shop.csv"}"
        latest = [5, 8]
        model = "gru4rec"
        training = {{ epochs = 1 }}
        [[runs]]
        data = "hawkes"
        hawkes = {{ users = 20, mean_events = [8, 12] }}
        model = "gru4rec"
        training = {{ epochs = 1 }}
        """
    )
    invoke("lab", "run", path, *folders(tmp_path))
    found = {result.data: result for result in read_results(tmp_path / "results-a")}
    assert set(found) == {"shop-latest5", "shop-latest8", "hawkes-users20-mean_events8", "hawkes-users20-mean_events12"}
    assert found["shop-latest5"].statistics["longest"] == 5
    assert found["shop-latest5"].training_length == 3
    assert found["hawkes-users20-mean_events8"].statistics["users"] == 20


def test_examples_are_kept_of_generated_users_only(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "hawkes-shop.csv")  # real people, whatever the file is called
    path = tmp_path / "grid.toml"
    small = 'model = "mars-t"\noptions = { length = 10, dim = 8 }\ntraining = { epochs = 1 }'
    path.write_text(
        f"""
        [[runs]]
        data = "{tmp_path / "hawkes-shop.csv"}"
        {small}
        [[runs]]
        data = "hawkes"
        hawkes = {{ users = 20, mean_events = 8 }}
        {small}
        """
    )
    invoke("lab", "run", path, *folders(tmp_path))
    found = {r.data: inspection_of(r, tmp_path / "results-a") for r in read_results(tmp_path / "results-a")}
    assert found["hawkes-shop"].decay is not None
    assert found["hawkes-shop"].examples == []
    assert found["hawkes-users20-mean_events8"].examples[0].user.startswith("u")


def test_variants_and_a_training_for_all(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(
        """
        training = { epochs = 7, patience = 3 }
        [[runs]]
        data = "hawkes"
        model = ["mars-t", "mars-m"]
        options = { dim = 32 }
        variants = { b1 = { "readout.real_time" = false }, b3 = { "readout.diversity" = 0.0 } }
        training = { patience = 5 }
        """
    )
    runs = read_experiment(path).runs
    assert [run.title for run in runs] == [
        "hawkes/mars-t (b1)/seed 0",
        "hawkes/mars-m (b1)/seed 0",
        "hawkes/mars-t (b3)/seed 0",
        "hawkes/mars-m (b3)/seed 0",
    ]
    assert runs[0].options == {"dim": 32, "readout.real_time": False}
    assert (runs[0].training.epochs, runs[0].training.patience) == (7, 5)


def test_hawkes_settings_are_for_hawkes(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text() + "\nhawkes = { users = 20 }")
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), *folders(tmp_path)])
    assert "hawkes settings are for data 'hawkes'" in str(answer.exception)


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


def test_ctrl_c_stops_all_workers_at_once(experiment: Path, tmp_path: Path) -> None:
    experiment.write_text(experiment.read_text().replace("epochs = 2", "epochs = 100000"))
    command = [sys.executable, "-m", "marsrec", "lab", "run", str(experiment), "--workers", "2"]
    heard = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)  # a shell's background jobs do not hear it
    runner = subprocess.Popen([*command, *folders(tmp_path)], stderr=subprocess.PIPE, text=True, preexec_fn=heard)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "runs-a").glob("*.training/curve.csv"))) < 2:  # both workers are at work
        assert runner.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert states(experiment, tmp_path).count("running") == 2
    runner.send_signal(signal.SIGINT)
    _, said = runner.communicate(timeout=60)
    assert runner.returncode == 130
    assert "Stopped. The same command goes on." in said


def test_ctrl_c_stops_runs_that_take_turns(experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = []

    def interrupted(run: object, *arguments: object, **options: object) -> bool:
        begun.append(run)
        raise KeyboardInterrupt

    monkeypatch.setattr("marsrec.lab.runner.in_time", interrupted)
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), *folders(tmp_path)])
    assert answer.exit_code == 130
    assert len(begun) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_one_failing_run_does_not_stop_the_others(experiment: Path, tmp_path: Path, workers: int) -> None:
    broken = '\n[[runs]]\ndata = "DATA"\nmodel = "gru4rec"\ntraining = { epochs = 1, prefix_share = 0.5 }\n'
    experiment.write_text(broken.replace("DATA", str(tmp_path / "shop.csv")) + experiment.read_text())
    arguments = ["lab", "run", str(experiment), "--workers", str(workers), "--only", "gru4rec", *folders(tmp_path)]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 1
    assert "1 of 3 runs failed" in str(answer.exception)
    assert "gru4rec/seed 0: prefix_share belongs to models that are not causal" in str(answer.exception)
    assert len(read_results(tmp_path / "results-a")) == 2


def test_a_run_that_another_runner_is_at_is_left_to_it(experiment: Path, tmp_path: Path) -> None:
    chosen = places(experiment, tmp_path)
    with (
        chosen[0][1].mine(),
        pytest.raises(MarsrecError, match=r"(?s)1 of 4.*seed 0: .*another process is at this run"),
    ):
        run_all(chosen)
    assert [place.progress() for _, place in chosen] == ["missing", "done", "done", "done"]


class Deadly(Place):
    """A place whose visitors are killed, as when memory runs out."""

    @contextmanager
    def mine(self) -> Iterator[None]:
        os.kill(os.getpid(), signal.SIGKILL)
        yield


@pytest.mark.parametrize("where", [{"workers": 2}, {"ray": "local"}], ids=["workers", "ray"])
def test_a_killed_worker_fails_one_run(
    experiment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: dict[str, object]
) -> None:
    if "ray" in where:
        pytest.importorskip("ray", reason="Ray is not installed (extra ray)")
        monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    chosen = places(experiment, tmp_path)
    run, place = chosen[0]
    deadly = Deadly(place.name, place.runs, place.results)
    reason = "The worker died unexpectedly" if "ray" in where else "its process was killed"
    with pytest.raises(MarsrecError, match=f"(?s)1 of 4 runs failed.*gru4rec/seed 0: {reason}"):
        run_all([(run, deadly), *chosen[1:]], **where)
    assert [place.progress() for _, place in chosen] == ["missing", "done", "done", "done"]


def test_a_run_goes_on_where_it_is_trained_elsewhere(experiment: Path, tmp_path: Path) -> None:
    """What does not decide a result does not keep its training from being resumed."""
    run, place = places(experiment, tmp_path)[0]
    begun = recommender_of(run)
    begun.training = run.training.model_copy(update={"epochs": 1})
    begun.fit(source_of(run).histories, folder=place.state, progress=False)
    experiment.write_text(experiment.read_text().replace("epochs = ", 'accelerator = "cpu", epochs = '))
    invoke("lab", "run", experiment, "--only", "gru4rec/seed 0", *folders(tmp_path))
    (result,) = read_results(tmp_path / "results-a")
    assert (result.name, result.training.accelerator) == (place.name, "cpu")
    assert result.curve[:1] == begun.metrics["curve"]  # seconds and all
    assert len(result.curve) == 2


def test_measurements_are_not_begun_out_of_time(experiment: Path, tmp_path: Path) -> None:
    invoke("lab", "run", experiment, *folders(tmp_path))
    experiment.write_text('efficiency = ["hawkes", "beauty"]\ntheory = "quick"\n' + experiment.read_text())
    done = tmp_path / "results-a" / "efficiency" / "hawkes.json"
    done.parent.mkdir()
    done.write_text("{}")
    arguments = ["lab", "run", str(experiment), "--max-minutes", "0", *folders(tmp_path)]
    answer = CliRunner().invoke(app, arguments)
    assert "Out of time, with the efficiency on beauty and the theory left. The same command goes on." in answer.stderr
    assert list(done.parent.iterdir()) == [done]


def test_two_labels_of_one_run_are_one_run(experiment: Path, tmp_path: Path) -> None:
    same = experiment.read_text().replace("[[runs]]", '[[runs]]\nlabel = "again"')
    experiment.write_text(experiment.read_text() + same)
    assert len(states(experiment, tmp_path)) == 4


def test_a_recipes_own_batches_are_trained_and_told(experiment: Path, tmp_path: Path) -> None:
    text = experiment.read_text().replace('["gru4rec", "mars-t"]', '"fearec"').replace("seed = [0, 1]", "")
    given = text.replace("targets_per_batch = 64", "targets_per_batch = 2048")
    experiment.write_text(text.replace(", targets_per_batch = 64", "") + given)
    place, other = (place for _, place in places(experiment, tmp_path))
    assert place.name != other.name
    invoke("lab", "run", experiment, *folders(tmp_path))
    trained = {result.name: result.training.targets_per_batch for result in read_results(tmp_path / "results-a")}
    assert trained == {place.name: 256, other.name: 2048}


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
        ("[[runs]]\ndata = 'x'\nmodel = 'y'\ntraining = { seed = 3 }", "seed stands beside data and model"),
    ],
)
def test_bad_experiments_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.toml"
    path.write_text(text)
    with pytest.raises(SettingsError, match=message):
        read_experiment(path)
