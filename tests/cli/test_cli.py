import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec import Recommender, TrainingSettings
from marsrec.cli import app
from marsrec.errors import MarsrecError
from marsrec.models import RECIPES
from marsrec.nn.kernels.selective_scan import FORCED, chosen

QUICK = ["--epochs", "3", "--targets-per-batch", "128", "--dim", "16", "--length", "8"]
runner = CliRunner()


def call(*arguments: str | Path) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str | Path) -> str:
    with pytest.raises(MarsrecError) as error:
        runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    return str(error.value)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "shop.csv"
    cyclic_log(users=30, events=10, items=15).write_csv(path)
    return path


@pytest.fixture(scope="module")
def saved(log: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "mars"
    call("fit", log, "--model", "mars-t", "--out", folder, *QUICK)
    return folder


def test_models_prints_the_papers_parameter_counts() -> None:
    rows = json.loads(call("models", "--items", "12101", "--length", "50", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"gru4rec": 856_512, "sasrec": 877_824, "mamba4rec": 846_784, "mars-t": 895_996, "mars-m": 937_084}
    assert expected.items() <= found.items()
    assert set(found) == set(RECIPES)
    rows = json.loads(call("models", "--items", "3416", "--length", "200", "--heads", "8", "--json"))
    found = {row["name"]: row["parameters"] for row in rows}
    expected = {"sasrec": 331_584, "mamba4rec": 290_944, "mars-t": 350_024, "mars-m": 381_512}
    assert expected.items() <= found.items()
    parts = {row["name"]: (row["encoder"], row["readout"], row["causal"]) for row in rows}
    assert parts["mars-m"] == ("mamba", "mars", True)


def test_the_backbone_rule_says_what_it_found_and_took(log: Path, tmp_path: Path) -> None:
    dense = tmp_path / "dense.csv"
    cyclic_log(users=4, events=60, items=15).write_csv(dense)
    for path, expected in (
        (log, "Average length 10.0 events, 8.0 of them for training, which is below 50: mars-t with 4 heads"),
        (dense, "Average length 60.0 events, 58.0 of them for training, which is 50 or more: mars-m with 8 heads"),
    ):
        arguments = ["fit", str(path), "--epochs", "1", "--dim", "16", "--out", str(tmp_path / path.stem)]
        result = runner.invoke(app, arguments, catch_exceptions=False)
        assert expected in result.stderr
        assert "--model" in result.stderr


def test_prepare_filters_and_writes(log: Path, tmp_path: Path) -> None:
    statistics = json.loads(call("prepare", log, "--out", tmp_path / "prepared", "--json"))
    assert (statistics["users"], statistics["items"], statistics["interactions"]) == (30, 15, 300)
    assert json.loads(call("prepare", tmp_path / "prepared", "--json"))["fingerprint"] == statistics["fingerprint"]
    assert "already prepared" in refused("prepare", tmp_path / "prepared", "--min-user-events", "3")


def test_prepare_ml_1m(public_data: Path) -> None:
    path = public_data / "ml-1m_raw.parquet"
    found = json.loads(call("prepare", path, "--min-user-events", "5", "--min-item-events", "5", "--json"))
    assert (found["users"], found["items"], found["interactions"]) == (6_040, 3_416, 999_611)


@pytest.mark.parametrize(
    ("given", "expected"), [([], 256), (["--published"], 2048), (["--targets-per-batch", "64"], 64)]
)
def test_fit_takes_the_recipes_batches_unless_told(log: Path, tmp_path: Path, given: list[str], expected: int) -> None:
    quick = ["--epochs", "1", "--dim", "8", "--length", "8"]
    call("fit", log, "--model", "fearec", "--out", tmp_path / "m", *quick, *given)
    assert Recommender.load(tmp_path / "m").training.targets_per_batch == expected


def test_fit_recommend_explain_evaluate(log: Path, saved: Path) -> None:
    table = json.loads(call("recommend", saved, "--user", "u3", "--k", "4", "--json"))
    assert [row["rank"] for row in table] == [1, 2, 3, 4]
    explained = json.loads(call("explain", saved, "--user", "u3", "--json"))
    assert explained["item"] == table[0]["item"]
    told = call("explain", saved, "--user", "u3").splitlines()[0]
    assert told.startswith(f"Score of {explained['item']}: {explained['score']:.4f} = ")
    total = explained["last_state"] + sum(term["share"] for term in explained["terms"])
    assert total == pytest.approx(explained["score"], abs=1e-5)
    assert explained["score"] == pytest.approx(table[0]["score"], abs=1e-5)
    measured = json.loads(call("evaluate", saved, "--json"))
    kept = json.loads((saved / "metrics.json").read_text())
    assert measured["metrics"] == pytest.approx(kept["test"])
    assert sum(row["users"] for row in measured["by_history_length"]) == 30
    assert pl.read_csv(saved / "training" / "curve.csv").height == 3
    assert not (saved / "training" / "training.safetensors").exists()
    assert not saved.with_name("mars.training").exists()


def test_recommend_for_histories_and_everybody(log: Path, saved: Path, tmp_path: Path) -> None:
    events = ["--event", "i3@2020-09-13T12:00", "--event", "i4@2020-09-14"]
    rows = json.loads(call("recommend", saved, *events, "--k", "2", "--json"))
    assert len(rows) == 2
    call("recommend", saved, "--all-users", "--k", "3", "--out", tmp_path / "all.parquet")
    assert pl.read_parquet(tmp_path / "all.parquet").height == 90
    rows = json.loads(call("recommend", saved, "--history", log, "--k", "1", "--json"))
    assert len(rows) == 30


def test_columns_named_for_fit_are_known_to_recommend(tmp_path: Path) -> None:
    shop = tmp_path / "shop.csv"
    renamed = cyclic_log(users=30, events=10, items=15).rename({"user": "who", "item": "what", "time": "at_time"})
    renamed.write_csv(shop)
    columns = ["--user", "who", "--item", "what", "--time", "at_time"]
    call("fit", shop, "--model", "sasrec", "--out", tmp_path / "model", *columns, *QUICK)
    rows = json.loads(call("recommend", tmp_path / "model", "--history", shop, "--k", "1", "--json"))
    assert len(rows) == 30


def test_models_fitted_on_pandas_answer_on_the_command_line(tmp_path: Path) -> None:
    training = TrainingSettings(epochs=1, tensorboard=False)
    recommender = Recommender("mars-t", options={"dim": 8}, training=training)
    recommender.fit(cyclic_log(users=30, events=10, items=15).to_pandas(), progress=False).save(tmp_path / "model")
    best = json.loads(call("recommend", tmp_path / "model", "--user", "u1", "--k", "1", "--json"))[0]["item"]
    explained = json.loads(call("explain", tmp_path / "model", "--user", "u1", "--json"))
    assert explained["item"] == best
    assert best in call("recommend", tmp_path / "model", "--user", "u1", "--k", "1")


def test_titles_stand_beside_items(tmp_path: Path) -> None:
    log = cyclic_log(users=9, events=8, items=6)
    log.write_csv(tmp_path / "log.csv")
    named = log.select(pl.col("item").unique()).with_columns(title=pl.format("Title of {}", "item"))
    named.filter(pl.col("item") != "i2").write_csv(tmp_path / "titles.csv")
    call("prepare", tmp_path / "log.csv", "--titles", tmp_path / "titles.csv", "--out", tmp_path / "shop")
    call("fit", tmp_path / "shop", "--model", "mars-t", "--out", tmp_path / "model", *QUICK)
    explained = json.loads(call("explain", tmp_path / "model", "--user", "u1", "--item", "i3", "--json"))
    assert explained["title"] == "Title of i3"
    titles = {term["item"]: term["title"] for term in explained["terms"]}
    assert titles == {item: None if item == "i2" else f"Title of {item}" for item in log["item"].unique()}
    assert "Title of i4" in call("explain", tmp_path / "model", "--user", "u1", "--item", "i2")
    (best,) = json.loads(call("recommend", tmp_path / "model", "--user", "u1", "--k", "1", "--keep-seen", "--json"))
    assert best["title"] == titles[best["item"]]


def test_ranks_are_written(saved: Path, tmp_path: Path) -> None:
    call("evaluate", saved, "--ranks", tmp_path / "ranks.parquet", "--mask-seen")
    ranks = pl.read_parquet(tmp_path / "ranks.parquet")
    assert ranks.columns == ["user", "target", "history_length", "rank"]
    assert ranks.height == 30
    assert ranks["history_length"].unique().to_list() == [9]


def test_raw_ids_are_printed_as_they_are(tmp_path: Path) -> None:
    frame = cyclic_log(users=5, events=8, items=6)
    frame = frame.with_columns(user=4000 + pl.col("user").str.slice(1).cast(pl.Int64), item=pl.format("2{}000", "item"))
    frame = frame.with_columns(item=pl.col("item").str.replace("i", "").cast(pl.Int64))
    frame.write_parquet(tmp_path / "log.parquet")
    call("fit", tmp_path / "log.parquet", "--out", tmp_path / "m", *QUICK)
    printed = call("recommend", tmp_path / "m", "--user", "4003", "--keep-seen")
    assert "4003" in printed
    assert "25000" in printed
    assert "Nothing is left" in runner.invoke(app, ["recommend", str(tmp_path / "m"), "--user", "4003"]).stderr


def test_the_request_clock_has_its_own_name(log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "mars-t, request clock on shop" in call("fit", log, "--clock", "request", *QUICK)
    assert (tmp_path / "runs" / "shop-mars-t-request-clock" / "config.json").exists()


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


def test_reading_options_do_not_apply_to_named_data() -> None:
    assert "do not apply" in refused("fit", "hawkes", "--min-rating", "4")


def test_nothing_is_overwritten_unasked(log: Path, saved: Path) -> None:
    assert "holds a saved model" in refused("fit", log, "--out", saved, *QUICK)
    assert "--overwrite trains anew" in refused("fit", log, "--out", saved, "--resume", *QUICK)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "no-such-file.csv"], "no such file"),
        (["fit", "beuty"], "beauty"),
        (["fit", "no-such-file.csv", "--model", "mars-x"], "unknown model 'mars-x'"),
        (["fit", "no-such-file.csv", "--model", "sasrec", "--heads", "2"], "Readout 'mars' has"),
        (["recommend", ".", "--user", "u1"], "holds no saved recommender"),
        (["recommend", "nowhere", "--user", "u1"], "there is no such folder"),
        (["recommend", "nowhere"], "say for whom"),
        (["explain", "nowhere"], "say whose history"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_global_time_split(log: Path, tmp_path: Path) -> None:
    arguments = ["--split", "global-time", "--valid-from", "0.7", "--test-from", "0.85", "--model", "sasrec"]
    result = json.loads(call("fit", log, "--out", tmp_path / "g", *arguments, *QUICK, "--json"))
    assert result["protocol"]["split"]["name"] == "global-time"
    measured = json.loads(call("evaluate", tmp_path / "g", "--json"))
    assert measured["metrics"] == pytest.approx(result["test"])


def test_errors_are_one_sentence_on_stderr_and_exit_with_1(tmp_path: Path) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("user,item,time\nann,tea,yesterday\n")
    command = [sys.executable, "-c", "from marsrec.cli import main; main()", "fit", str(broken)]
    environment = {**os.environ, "COLUMNS": "200"}
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert result.returncode == 1
    assert result.stdout == ""
    assert "error:" in result.stderr
    assert "broken.csv" in result.stderr
    assert "yesterday" in result.stderr
    assert "Traceback" not in result.stderr


def test_what_the_system_refuses_is_one_sentence(saved: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = tmp_path / "file" / "all.csv"
    command = [sys.executable, "-c", "from marsrec.cli import main; main()"]
    command += ["recommend", str(saved), "--all-users", "--out", str(out)]
    result = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "200"}, check=False)
    assert result.returncode == 1
    assert f"error: {tmp_path / 'file'}" in result.stderr
    assert "Traceback" not in result.stderr


def test_doctor_tells_versions() -> None:
    findings = json.loads(call("doctor", "--json"))
    assert findings["versions"]["torch"].startswith("2.")
    assert findings["machine"]["torch threads"] >= 1


@pytest.mark.parametrize(
    ("forced", "told"),
    [
        (None, "numba, compiled for this CPU; MARSREC_SCAN=reference or cpu forces one"),
        ("cuda", "numba, compiled for this CPU; MARSREC_SCAN=cuda is for other devices"),
        ("reference", "torch, a position at a time, forced by MARSREC_SCAN=reference"),
        ("fastest", "error: selective scan 'fastest'"),
    ],
)
def test_doctor_tells_the_scan(forced: str | None, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen.cache_clear()
    monkeypatch.delenv(FORCED, raising=False)
    if forced:
        monkeypatch.setenv(FORCED, forced)
    assert json.loads(call("doctor", "--json"))["kernels"]["selective scan"].startswith(told)
    chosen.cache_clear()
