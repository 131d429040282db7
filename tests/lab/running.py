"""Small experiments and how they are run, and places that stand for what goes wrong."""

import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.lab.experiment import Run, read_experiment
from marsrec.lab.runner import Place, place_of


def invoke(*arguments: object) -> str:
    answer = CliRunner().invoke(app, list(map(str, arguments)))
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def folders(tmp_path: Path, name: str = "a") -> list[str]:
    return ["--results", str(tmp_path / f"results-{name}"), "--runs", str(tmp_path / f"runs-{name}")]


def places(experiment: Path, tmp_path: Path, name: str = "a") -> list[tuple[Run, Place]]:
    runs = read_experiment(experiment).runs
    return [(run, place_of(run, tmp_path / f"runs-{name}", tmp_path / f"results-{name}")) for run in runs]


def states(experiment: Path, tmp_path: Path) -> list[str]:
    status = json.loads(invoke("lab", "status", experiment, "--json", *folders(tmp_path)))
    return [row["state"] for row in status["runs"]]


class Deadly(Place):
    """A place whose visitors are killed, as when memory runs out."""

    @classmethod
    def like(cls, place: Place) -> "Deadly":
        return cls(place.name, place.runs, place.results)

    @contextmanager
    def mine(self) -> Iterator[None]:
        os.kill(os.getpid(), getattr(signal, "SIGKILL", signal.SIGTERM))
        yield


class Endless(Place):
    """A place where a run takes for ever."""

    @property
    def model(self) -> Path:
        self.visitor.write_text(str(os.getpid()))
        time.sleep(3600)
        return super().model

    @property
    def visitor(self) -> Path:
        """Written by the process that is at it."""
        return self.runs / f"{self.name}.pid"
