"""The notebooks under `examples/` run, and hold no outputs of the machine that they were written on."""

import os
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[1] / "examples").glob("*.ipynb"))
by_name = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@by_name
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient")
    environment = {name: value for name, value in os.environ.items() if name != "MARSREC_DATA"}
    notebook = nbformat.read(path, as_version=4)
    monkeypatch.chdir(tmp_path)
    client = nbclient.NotebookClient(notebook, kernel_name="python3", timeout=600)
    client.execute(env=environment | {"OMP_NUM_THREADS": "1"})
    shown = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert shown
    assert not [output["text"] for output in shown if output.get("name") == "stderr"]


@by_name
def test_a_notebook_is_kept_without_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert all(not cell.outputs and cell.execution_count is None for cell in cells)
