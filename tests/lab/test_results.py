"""Results say what was run, and are checked against the saved model when they are written."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.lab.made import result
from tests.signed import sign
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec import Recommender
from marsrec.cli import app
from marsrec.errors import DataError
from marsrec.lab.results import read_results, record

TRAINING = ["--epochs", "1", "--targets-per-batch", "64", "--length", "10"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    folder = tmp_path / "run"
    arguments = [
        "fit",
        str(tmp_path / "shop.csv"),
        "--model",
        "tisasrec",
        "--published",
        "--out",
        str(folder),
        *TRAINING,
    ]
    assert CliRunner().invoke(app, arguments).exit_code == 0
    return folder


def test_a_result_tells_the_run_and_its_ranks(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    path = record(run, results)
    loaded = Recommender.load(run)
    assert loaded.published
    (result,) = read_results(results)
    assert path.name == f"{result.name}.json"
    assert (result.data, result.model, result.training.epochs) == ("shop", "tisasrec, published", 1)
    assert result.settings == loaded.settings
    assert result.fingerprint == loaded.histories.fingerprint
    assert result.test == loaded.metrics["test"]
    assert len(result.curve) == 1
    assert result.versions is not None
    assert "torch" in result.versions
    ranks = pl.read_parquet(results / "ranks" / f"{result.name}.parquet")
    assert (ranks["rank"] <= 10).mean() == pytest.approx(result.test["HR@10"])
    assert ranks["length"].to_list() == [11] * 20
    assert ranks["user"].to_list() == list(range(20))
    assert result.origins is None

    shown = CliRunner().invoke(app, ["lab", "status", "--results", str(results), "--json"])
    assert json.loads(shown.stdout)["runs"][0]["run"] == result.name


def test_another_setting_is_another_result(run: Path, tmp_path: Path) -> None:
    results = tmp_path / "results"
    record(run, results)
    other = tmp_path / "other"
    arguments = [
        "fit",
        str(tmp_path / "shop.csv"),
        "--model",
        "tisasrec",
        "--published",
        "--out",
        str(other),
        *TRAINING,
    ]
    assert CliRunner().invoke(app, [*arguments, "--learning-rate", "0.01"]).exit_code == 0
    record(other, results)
    record(other, results)
    assert len(read_results(results)) == 2


def test_another_order_of_events_is_other_data(tmp_path: Path) -> None:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    arguments = ["fit", str(tmp_path / "shop.csv"), "--model", "gru4rec", "--ties", "recbole", *TRAINING]
    assert CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "run")]).exit_code == 0
    record(tmp_path / "run", tmp_path / "results")
    (result,) = read_results(tmp_path / "results")
    assert result.data == "shop-recbole"


def test_what_does_not_agree_is_refused(run: Path, tmp_path: Path) -> None:
    metrics = json.loads((run / "metrics.json").read_text())
    for change, message in (
        ({"test": {**metrics["test"], "HR@10": 0.99}}, "HR@10 was 0.9900 after training"),
        ({"complete": False}, "a time limit cut the training short"),
        ({"data": {}}, "Give it with --data"),
    ):
        (run / "metrics.json").write_text(json.dumps(metrics | change))
        sign(run)  # checksums would tell it, too
        with pytest.raises(DataError, match=message):
            record(run, tmp_path / "results")
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "x.json").write_text('{"data": "shop"}')
    with pytest.raises(DataError, match=r"x\.json: not a result"):
        read_results(tmp_path / "results")


def test_a_result_with_an_unknown_part_names_its_module(tmp_path: Path) -> None:
    made = result("sasrec").model_dump(mode="json")
    made["settings"]["encoder"] = {"name": "mine"}
    path = tmp_path / "x.json"
    for origins, remedy in (
        (None, r"`marsrec --import MODULE`"),
        (
            {"encoder": {"module": "my_parts", "distribution": "mine"}},
            r"my_parts \(package mine\).*`marsrec --import my_parts`",
        ),
    ):
        path.write_text(json.dumps(made | {"origins": origins}))
        with pytest.raises(DataError, match=rf"x\.json: unknown encoder 'mine'.*{remedy}"):
            read_results(tmp_path)
