"""The command that searches settings: the winner is saved, and its command line makes it again."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cli.calls import call, outputs, refused
from tests.synthetic import cyclic_log

from marsrec import Recommender, tune
from marsrec.errors import SettingsError
from marsrec.evaluation.evaluate import evaluate

SMALL = ["--model", "sasrec", "--epochs", 3, "--dim", 8, "--set", "encoder.layers=1", "--trials", 3, "--minutes", 5]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("my logs") / "shop.csv"
    cyclic_log(users=40, events=10, items=15).write_csv(path)
    return path


def test_the_winner_is_saved_told_and_made_again_by_its_command(
    log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, Any]] = []

    def watched(model: Any, split: Any, length: int, part: Any = "test", **options: Any) -> Any:
        seen.append((part, model))
        return evaluate(model, split, length, part, **options)

    monkeypatch.setattr("marsrec.recommender.fitting.evaluate", watched)
    folder = tmp_path / "it's found"
    told, remarks = outputs("tune", log, *SMALL, "--deduplicate", "--out", folder)
    assert [part for part, _ in seen] == ["valid", "test"] * (len(seen) // 2)
    assert len({id(model) for part, model in seen if part == "test"}) <= 2  # the winner and the default
    assert "trial 3/3: " in remarks
    found = json.loads((folder / "tuned.json").read_text())
    assert found["verdict"] in told.replace("\n", " ")
    assert (folder / "tuning.png").stat().st_size > 10_000
    winner = Recommender.load(folder / "model")
    trials = pl.read_csv(folder / "trials.csv")
    assert trials["trial"][0] == 0
    assert sorted(trials["trial"]) == [0, 1, 2, 3]
    chosen = trials.row(by_predicate=pl.col("trial") == found["trial"], named=True)
    assert winner.metrics["valid"]["NDCG@10"] == pytest.approx(chosen["valid"], abs=1e-6)
    assert winner.training.learning_rate == chosen["training.learning_rate"]
    (row,) = [row for row in found["compared"] if row["metric"] == "NDCG@10"]
    assert row["a"] == winner.metrics["test"]["NDCG@10"]
    assert row["low"] <= row["difference"] <= row["high"]

    command, recommend = (
        shlex.split(line) for line in remarks.splitlines() if line.startswith(("  marsrec fit", "  marsrec recommend"))
    )
    again = json.loads(call(*command[1:], "--out", tmp_path / "again", "--json"))
    assert again["test"] == winner.metrics["test"]
    call(*recommend[1:])


def test_killed_in_a_trial_it_goes_on(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "b"
    arguments = [str(part) for part in ("tune", log, *SMALL)]
    command = [sys.executable, "-m", "marsrec", *arguments, "--out", str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}  # as in this process
    killed = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL, env=environment)
    deadline = time.monotonic() + 120
    while len(list(folder.glob("trials/*/curve.csv"))) < 3:  # the default, a trial, and one that is at it
        assert killed.poll() is None, "ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.005)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (folder / "tuned.json").exists()
    resumed = json.loads(call(*arguments, "--out", folder, "--json"))
    undisturbed = json.loads(call(*arguments, "--out", tmp_path / "a", "--json"))
    for name in ("trial", "settings", "test", "verdict"):
        assert resumed[name] == undisturbed[name]


def test_from_python_a_frame_will_do(tmp_path: Path) -> None:
    base = Recommender("gru4rec", options={"dim": 8, "length": 8, "encoder.dropout": 0.1})
    base.training = base.training.model_copy(update={"epochs": 2})
    found = tune(cyclic_log(users=20), base, out=tmp_path, trials=1, minutes=5, progress=False)
    assert found.trials["trial"].to_list() == [0, 1]
    assert set(found.settings) <= set(found.trials.columns)
    assert found.verdict() in repr(found)
    assert found.recommender.recommend("u1", k=1, mask_seen=False)["rank"].to_list() == [1]
    assert found.default.training.schedule == "constant"
    assert Recommender.load(tmp_path / "model").settings == found.recommender.settings


def test_what_cannot_be_searched_is_refused(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    assert "holds other files" in refused("tune", log, *SMALL, "--out", tmp_path)
    assert "needs minutes and trials" in refused("tune", log, *SMALL, "--minutes", 0, "--out", tmp_path / "x")
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SettingsError, match=r"a search for settings needs optuna.*marsrec\[tune\]"):
        tune(log, "sasrec", out=tmp_path / "y")
    assert not (tmp_path / "y").exists()
