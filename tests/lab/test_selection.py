"""Runs that choose between settings do not see the test."""

import json
from pathlib import Path

import polars as pl
import pytest
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.lab.results import TRIALS, read_results
from marsrec.recommender import Recommender


def lab(*arguments: object) -> str:
    answer = CliRunner().invoke(app, ["lab", *map(str, arguments)])
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def noted(*arguments: object) -> str:
    answer = CliRunner().invoke(app, ["lab", *map(str, arguments)])
    assert answer.exit_code == 0, answer.output
    return answer.stderr


def test_selection_writes_no_test_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cyclic_log(users=20).write_csv("shop.csv")
    experiment = tmp_path / "choice.toml"
    runs = """
        [[runs]]
        data = "shop.csv"
        model = "sasrec"
        training = { epochs = 1 }
        options = { dim = 8, length = 10 }
    """
    experiment.write_text(f"selection = true\n{runs}")
    evaluated = []
    evaluate = Recommender.evaluate
    monkeypatch.setattr(
        Recommender, "evaluate", lambda self, part="test", **kw: (evaluated.append(part), evaluate(self, part, **kw))[1]
    )
    assert f"Results are in {Path('results', TRIALS)};" in " ".join(noted("run", experiment).split())
    (written,) = Path("results", TRIALS).glob("*.json")
    result = json.loads(written.read_text())
    assert result["test"] == {}
    assert result["valid"]["NDCG@10"] > 0
    assert "test" not in json.loads(Path("runs", TRIALS, written.stem, "metrics.json").read_text())
    assert evaluated == ["valid"]
    assert pl.read_parquet(Path("results", TRIALS, "ranks", f"{written.stem}.parquet")).height == 20
    assert not Path("results", TRIALS, "inspections").exists()
    assert read_results(Path("results")) == []
    (row,) = json.loads(lab("status", experiment, "--json"))["runs"]
    hits = f"{100 * result['valid']['HR@10']:.2f}"
    assert (row["state"], row["HR@10"]) == ("done", hits)

    lab("report", experiment, "--out", "report")
    page = Path("report", "models.md").read_text()
    assert "Validation × 100" in page
    assert "shop, validation" in page
    assert hits in page
    assert f"`{TRIALS}/`. Validation × 100" in Path("report", "everything.md").read_text()
    assert "Validation NDCG@10 × 100 by number" in Path("report", "groups.md").read_text()

    experiment.write_text(runs)  # the same run for a result: its test is due
    (row,) = json.loads(lab("status", experiment, "--json"))["runs"]
    assert row["state"] == "missing"
    lab("run", experiment)
    (found,) = read_results(Path("results"))
    assert found.name == written.stem
    assert found.test["NDCG@10"] > 0
    assert found.valid == result["valid"]
