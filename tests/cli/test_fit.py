"""The command that trains."""

import json
from pathlib import Path

import pytest
from tests.cli.calls import QUICK, call, outputs, refused
from tests.synthetic import cyclic_log

from marsrec import Recommender


def test_the_backbone_rule_says_what_it_found_and_took(log: Path, tmp_path: Path) -> None:
    dense = tmp_path / "dense.csv"
    cyclic_log(users=4, events=60, items=15).write_csv(dense)
    for path, expected in (
        (log, "Average length 10.0 events, 8.0 of them for training, which is below 50: mars-t with 4 heads"),
        (dense, "Average length 60.0 events, 58.0 of them for training, which is 50 or more: mars-m with 8 heads"),
    ):
        arguments = ["--epochs", 1, "--dim", 8, "--length", 8, "--out", tmp_path / path.stem]
        stderr = outputs("fit", path, *arguments)[1]
        assert expected in stderr
        assert "--model" in stderr


@pytest.mark.parametrize(
    ("given", "expected"), [([], 256), (["--published"], 2048), (["--targets-per-batch", "64"], 64)]
)
def test_the_recipes_batches_go_unless_others_are_given(
    log: Path, tmp_path: Path, given: list[str], expected: int
) -> None:
    quick = ["--epochs", "1", "--dim", "8", "--length", "8"]
    call("fit", log, "--model", "fearec", "--out", tmp_path / "m", *quick, *given)
    assert Recommender.load(tmp_path / "m").training.targets_per_batch == expected


def test_the_request_clock_has_its_own_name(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "mars-t, request clock, repeats on shop" in call("fit", log, "--clock", "request", *QUICK)
    assert (tmp_path / "runs" / "shop-mars-t-request-clock" / "config.json").exists()


def test_parts_of_a_recipe_are_replaced(log: Path, tmp_path: Path) -> None:
    parts = ["--encoder", "gru", "--readout", "core", "--scorer", "cosine", "--objective", "next item + contrast"]
    call("fit", log, "--model", "sasrec", *parts, "--out", tmp_path / "m", "--epochs", 1, "--dim", 8, "--length", 8)
    settings = Recommender.load(tmp_path / "m").settings
    expected = ("gru", "core", "cosine", "next item + contrast")
    assert (settings.encoder.name, settings.readout.name, settings.scorer.name, settings.objective.name) == expected
    assert "unknown scorer 'cosin'; known are biased" in refused("fit", log, "--scorer", "cosin")


def test_an_unfinished_training_is_resumed_by_the_same_command(log: Path, tmp_path: Path) -> None:
    folder = tmp_path / "m"
    limited = call(
        "fit", log, "--out", folder, *QUICK, "--epochs", "500", "--patience", "500", "--max-minutes", "0.01", "--json"
    )
    assert json.loads(limited)["complete"] is False
    assert "unfinished training" in refused("fit", log, "--out", folder, *QUICK)
    arguments = ["--epochs", "4", "--patience", "500"]
    resumed = json.loads(call("fit", log, "--out", folder, "--resume", *QUICK, *arguments, "--json"))
    assert resumed["complete"] is True
    assert not folder.with_name("m.training").exists()


def test_nothing_is_overwritten_by_accident(log: Path, saved: Path) -> None:
    assert "holds a saved model" in refused("fit", log, "--out", saved, *QUICK)
    assert "--overwrite trains again" in refused("fit", log, "--out", saved, "--resume", *QUICK)


def test_global_time_split(log: Path, tmp_path: Path) -> None:
    arguments = ["--split", "global-time", "--valid-from", "0.7", "--test-from", "0.85", "--model", "sasrec"]
    result = json.loads(call("fit", log, "--out", tmp_path / "g", *arguments, *QUICK, "--json"))
    assert result["protocol"]["split"]["name"] == "global-time"
    measured = json.loads(call("evaluate", tmp_path / "g", "--json"))
    assert measured["metrics"] == pytest.approx(result["test"])


def test_a_figure_stands_beside_what_needs_no_training(tmp_path: Path) -> None:
    always = tmp_path / "always.csv"
    rows = [f"u{user},i{user},{86400 * day}" for user in range(30) for day in range(6)]
    always.write_text("\n".join(["user,item,time", *rows]) + "\n")
    stdout, stderr = outputs("fit", always, "--model", "sasrec", "--epochs", 1, "--dim", 8, "--out", tmp_path / "m")
    assert "The same test without training" in stdout
    assert "'what followed' needs no training and has the higher NDCG@10 here" in stderr
    measured = Recommender.load(tmp_path / "m").metrics["yardsticks"]
    assert measured["test"]["own items"]["HR@10"] == measured["valid"]["own items"]["HR@10"] == 1.0
