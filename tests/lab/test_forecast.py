"""How long the rest of an experiment may take, by what is known best."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.lab.made import result, write_with_ranks
from tests.synthetic import cyclic_log
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.lab.experiment import Run
from marsrec.lab.forecast import expected_minutes
from marsrec.lab.results import Result
from marsrec.lab.runner import Place, place_of, source_of
from marsrec.training.fit import CHECKPOINT, CURVE
from marsrec.training.settings import TrainingSettings

EVENTS = 20 * 12


@pytest.fixture
def run(tmp_path: Path) -> Run:
    cyclic_log(users=20).write_csv(tmp_path / "shop.csv")
    return Run(data=str(tmp_path / "shop.csv"), model="gru4rec")


def place(run: Run, tmp_path: Path) -> Place:
    return place_of(run, tmp_path / "runs", tmp_path / "results")


def on_the_log(run: Run, model: str, /, **changed: Any) -> Result:
    """A result of 25 epochs in 7 minutes; what data are called does not matter, their events do."""
    histories = source_of(run).histories
    known = {"fingerprint": histories.fingerprint, "statistics": histories.statistics()}
    return result(model, data="other-name").model_copy(update=known | changed)


def begin(at: Place, seconds: list[float], reached: list[float]) -> None:
    at.state.mkdir(parents=True)
    (at.state / CHECKPOINT).write_bytes(b"")
    pl.DataFrame({"valid/NDCG@10": reached, "seconds": seconds}).write_csv(at.state / CURVE)


def test_what_is_most_alike_counts(run: Run, tmp_path: Path) -> None:
    here = place(run, tmp_path)
    assert expected_minutes(run, here, []) is None
    found = [result("sasrec")]
    assert expected_minutes(run, here, found) is None  # neither its data nor its model
    found.append(on_the_log(run, "sasrec", minutes=30.0))
    assert expected_minutes(run, here, found) == 30
    found.append(result("gru4rec", data="beauty"))
    assert expected_minutes(run, here, found) == pytest.approx(7 * EVENTS / 198_502)
    found += [on_the_log(run, "gru4rec", minutes=minutes) for minutes in (8.0, 10.0)]
    assert expected_minutes(run, here, found) == 9


def test_other_trainings_do_not_count(run: Run, tmp_path: Path) -> None:
    short = on_the_log(run, "gru4rec", minutes=0.1, training=TrainingSettings(epochs=2))
    other_seed = on_the_log(run, "gru4rec", minutes=8.0, training=TrainingSettings(seed=3))
    assert expected_minutes(run, place(run, tmp_path), [short]) is None
    assert expected_minutes(run, place(run, tmp_path), [short, other_seed]) == 8


def test_a_share_of_the_prefixes_is_not_all_of_them(run: Run, tmp_path: Path) -> None:
    share = run.model_copy(update={"model": "sigma", "training": TrainingSettings(prefix_share=0.02)})
    whole = on_the_log(run, "sigma", minutes=100.0)
    alike = on_the_log(run, "sigma", minutes=2.0, training=share.training)
    assert expected_minutes(share, place(share, tmp_path), [whole, alike]) == 2
    assert (
        expected_minutes(
            share.model_copy(update={"training": TrainingSettings()}), place(run, tmp_path), [whole, alike]
        )
        == 100
    )


def test_a_model_is_its_recipe_also_by_the_backbone_rule(run: Run, tmp_path: Path) -> None:
    ruled = run.model_copy(update={"model": "mars"})
    found = [on_the_log(run, "sasrec", minutes=30.0), on_the_log(run, "mars-t", model="mars-t, request clock")]
    assert expected_minutes(ruled, place(ruled, tmp_path), found) == 7


@pytest.mark.parametrize(
    ("best", "training", "known", "left"),
    [
        (2, {}, [], 19),  # patience ends 20 epochs after the best one
        (2, {}, [25], 22),  # as many as the model had elsewhere
        (2, {}, [25, 31, 200], 28),
        (3, {}, [4], 20),
        (2, {"epochs": 10}, [25], 7),
        (1, {"patience": 2}, [25], 0),  # it has stopped, and is to be tested
        (3, {"epochs": 3}, [25], 0),
    ],
)
def test_a_begun_run_goes_on_at_its_own_pace(
    run: Run, tmp_path: Path, best: int, training: dict[str, int], known: list[int], left: int
) -> None:
    run = run.model_copy(update={"training": TrainingSettings(**training)})
    here = place(run, tmp_path)
    begin(here, seconds=[60.0, 12.0, 10.0], reached=[0.2 if epoch == best else 0.1 for epoch in (1, 2, 3)])
    found = [on_the_log(run, "gru4rec", epochs=epochs) for epochs in known]
    assert expected_minutes(run, here, found) == pytest.approx(left * 12 / 60)


def test_status_tells_what_is_left_of_each_run_and_in_sum(run: Run, tmp_path: Path) -> None:
    experiment = tmp_path / "grid.toml"
    experiment.write_text(f'[[runs]]\ndata = "{run.data}"\nmodel = ["gru4rec", "sasrec"]\nseed = [0, 1]\n')
    arguments = ["lab", "status", str(experiment), "--results", str(tmp_path / "results"), "--runs"]
    arguments.append(str(tmp_path / "runs"))

    def status() -> Any:
        answer = CliRunner().invoke(app, [*arguments, "--json"], catch_exceptions=False)
        return json.loads(answer.stdout)

    nothing = status()
    assert [row["minutes left"] for row in nothing["runs"]] == [None] * 4
    assert (nothing["minutes left"], nothing["runs of unknown length"]) == (0, 4)
    begin(place(run, tmp_path), seconds=[30.0, 30.0], reached=[0.1, 0.2])
    write_with_ranks(tmp_path / "results", on_the_log(run, "sasrec", minutes=30.0), [1.0], [3])
    found = status()
    assert [row["state"] for row in found["runs"]] == ["begun", "missing", "missing", "missing"]
    assert [row["minutes left"] for row in found["runs"]] == [10, 30, 30, 30]
    assert (found["minutes left"], found["runs of unknown length"]) == (100, 0)
    shown = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert "minutes left" in shown.stdout
    assert "The rest may take 1.7 hours" in shown.stderr
