"""`python -m reproduction` writes the report, and measures what an experiment names and is not there."""

from pathlib import Path
from typing import Any

import pytest
from reproduction.__main__ import app
from tests.lab.made import result, write_with_ranks
from typer.testing import CliRunner

from marsrec.errors import SettingsError
from reproduction import costs, theory

EFFICIENCY = 'efficiency = ["hawkes", "beauty"]\n'


def invoke(*arguments: object) -> Any:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was measured, without doing it."""
    done: list[object] = []

    def prove(quick: bool) -> dict[str, Any]:
        done.append(quick)
        return {"quick": quick, "layout": theory.LAYOUT}

    def cost(data: str, rounds: int) -> costs.Costs:
        done.append(data)
        return costs.Costs(data=data, items=1, length=1, rows=[], versions={}, machine={})

    monkeypatch.setattr(theory, "measure", prove)
    monkeypatch.setattr(costs, "measure", cost)
    return done


def test_what_is_missing_is_measured_once(tmp_path: Path, measured: list[object]) -> None:
    experiment, results = tmp_path / "some.toml", tmp_path / "results"
    experiment.write_text(EFFICIENCY + 'theory = "quick"')
    invoke("efficiency", "hawkes", "--results", results)
    assert measured == ["hawkes"]
    for _ in range(2):
        answer = invoke("measure", experiment, "--results", results)
        assert answer.exit_code == 0, answer.output
    assert measured == ["hawkes", "beauty", True]
    experiment.write_text('theory = "full"')
    invoke("measure", experiment, "--results", results)
    assert measured[3:] == [False]
    answer = invoke("theory", "--quick", "--results", results)
    assert "measured in full already" in str(answer.exception)


def test_an_older_layout_does_not_suffice(tmp_path: Path) -> None:
    path = tmp_path / theory.MEASURED
    path.parent.mkdir()
    path.write_text('{"quick": false}')
    assert theory.suffices(tmp_path, quick=True)
    assert not theory.suffices(tmp_path, quick=False)


def test_nothing_to_measure_or_to_report_is_said(tmp_path: Path) -> None:
    (tmp_path / "some.toml").write_text("")
    answer = invoke("measure", tmp_path / "some.toml")
    assert isinstance(answer.exception, SettingsError)
    assert "names neither efficiency nor theory" in str(answer.exception)
    assert "no results to report" in str(invoke("--results", tmp_path).exception)


def test_the_report_is_written(tmp_path: Path) -> None:
    write_with_ranks(tmp_path, result("sasrec"), [1.0], [5])
    answer = invoke("--results", tmp_path, "--out", tmp_path / "out")
    assert answer.exit_code == 0, answer.output
    assert "from 1 results" in answer.stderr
    assert (tmp_path / "out" / "main.md").exists()
