"""A Ray cluster finds what this machine finds, and a killed worker there fails one run."""

from pathlib import Path

import pytest
from tests.lab.running import Deadly, folders, invoke, places
from typer.testing import CliRunner

from marsrec.cli import app
from marsrec.errors import MarsrecError
from marsrec.lab.experiment import Run
from marsrec.lab.results import read_results
from marsrec.lab.runner import Place, run_all

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")


@pytest.fixture(scope="module")
def chosen(shared: Path) -> list[tuple[Run, Place]]:
    """Two runs that are done, and one whose worker is killed."""
    first, doomed, second, _ = places(shared, shared.parent)
    return [first, second, (doomed[0], Deadly.like(doomed[1]))]


@pytest.fixture(scope="module")
def failure(chosen: list[tuple[Run, Place]]) -> str:
    """What a cluster says that did them."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
        patched.delenv("MARSREC_DATA", raising=False)  # workers that wait already have no environment of their own
        with pytest.raises(MarsrecError) as raised:
            run_all(chosen, ray="local")
    return str(raised.value)


def test_a_killed_worker_fails_one_run(failure: str, chosen: list[tuple[Run, Place]]) -> None:
    assert "1 of 3 runs failed" in failure
    assert "gru4rec/seed 1: The worker died unexpectedly" in failure
    assert [place.progress() for _, place in chosen] == ["done", "done", "missing"]


@pytest.mark.usefixtures("failure")
def test_a_ray_cluster_finds_the_same(shared: Path) -> None:
    invoke("lab", "run", shared, "--only", "seed 0", *folders(shared.parent, "b"))
    there, alone = (read_results(shared.parent / f"results-{name}") for name in "ab")
    assert [result.name for result in alone] == [result.name for result in there]
    assert len(alone) == 2
    assert [result.test for result in alone] == [result.test for result in there]
    for kind in ("ranks", "inspections"):
        written = [sorted(p.name for p in (shared.parent / f"results-{name}" / kind).iterdir()) for name in "ab"]
        assert written[0] == written[1]


def test_no_cluster_where_one_was_named(experiment: Path, tmp_path: Path) -> None:
    answer = CliRunner().invoke(app, ["lab", "run", str(experiment), "--ray", "auto", *folders(tmp_path)])
    assert answer.exit_code != 0
    assert "--ray auto: no Ray cluster there" in str(answer.exception)
