"""Several workers find what one finds; a run that fails, or whose process is killed, does not stop the others."""

from pathlib import Path

import pytest
from tests.lab.running import Deadly, folders, invoke, places

from marsrec.errors import MarsrecError
from marsrec.lab.experiment import Run
from marsrec.lab.results import read_results
from marsrec.lab.runner import Place, run_all


@pytest.fixture(scope="module")
def chosen(shared: Path) -> list[tuple[Run, Place]]:
    """A run whose worker is killed, one that fails, and two that are done."""
    broken = shared.read_text().replace("seed = [0, 1]", "seed = 2").replace("epochs", "prefix_share = 0.5, epochs")
    shared.write_text(broken.replace('["gru4rec", "mars-t"]', '"gru4rec"') + shared.read_text())
    wrong, first, second, doomed, _ = places(shared, shared.parent)
    return [(doomed[0], Deadly.like(doomed[1])), first, wrong, second]


@pytest.fixture(scope="module")
def failure(chosen: list[tuple[Run, Place]]) -> str:
    """What two workers say that did them."""
    with pytest.raises(MarsrecError) as raised:
        run_all(chosen, workers=2)
    return str(raised.value)


def test_failures_are_named(failure: str) -> None:
    assert "2 of 4 runs failed" in failure
    assert "gru4rec/seed 2: prefix_share belongs to models that are not causal" in failure
    assert "mars-t/seed 0: its process was killed" in failure


@pytest.mark.usefixtures("failure")
def test_the_others_are_done(chosen: list[tuple[Run, Place]]) -> None:
    assert [place.progress() for _, place in chosen] == ["missing", "done", "missing", "done"]


@pytest.mark.usefixtures("failure")
def test_several_workers_find_the_same(shared: Path) -> None:
    invoke("lab", "run", shared, "--only", "gru4rec/seed [01]", *folders(shared.parent, "b"))
    together, alone = (read_results(shared.parent / f"results-{name}") for name in "ab")
    assert [result.name for result in alone] == [result.name for result in together]
    assert len(alone) == 2
    assert [result.test for result in alone] == [result.test for result in together]
