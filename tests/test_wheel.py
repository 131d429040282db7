"""The wheel: what is in it, and that README's Python runs where only it is installed."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from tests.test_docs import blocks

import marsrec

pytest.importorskip("build", reason="build is not installed (extra dev)")

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "marsrec"
RUN = """
import sys
from pathlib import Path
import marsrec
assert Path(marsrec.__file__).is_relative_to(sys.argv[1]), marsrec.__file__
import marsrec.training.fit as training
whole = training.fit

def short(split, model, settings, **how):
    return whole(split, model, settings.model_copy(update={"epochs": 1}), **how)

training.fit = short
names = {"__name__": "readme"}
for block in Path("blocks").read_text("utf-8").split("\\0"):
    exec(compile(block, "README.md", "exec"), names)
"""


def run(*command: str | Path, folder: Path, **environment: str) -> str:
    """What a command prints; what it complains of is the failure."""
    alone = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=folder, env=alone | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, so that nothing is written among them."""
    folder = tmp_path_factory.mktemp("sources")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(PACKAGE, folder / "src" / "marsrec", ignore=shutil.ignore_patterns("__pycache__"))
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", "dist", folder=folder)
    (built,) = (folder / "dist").iterdir()
    return built


def test_its_name_tells_the_version(wheel: Path) -> None:
    assert wheel.name == f"marsrec-{marsrec.__version__}-py3-none-any.whl"


def test_it_holds_the_package_and_nothing_else(wheel: Path) -> None:
    info = f"marsrec-{marsrec.__version__}.dist-info/"
    with zipfile.ZipFile(wheel) as content:
        names = set(content.namelist())
        metadata = content.read(f"{info}METADATA").decode()
    compiled = (".pyc", ".nbi", ".nbc")
    files = {
        f"marsrec/{path.relative_to(PACKAGE).as_posix()}"
        for path in PACKAGE.rglob("*")
        if path.is_file() and not path.name.endswith(compiled)
    }
    assert {name for name in names if not name.startswith(info) and not name.endswith(compiled)} == files
    assert {"marsrec/py.typed", "marsrec/serve/page/index.html"} <= names
    assert f"{info}licenses/LICENSE" in names
    assert "Author: The marsrec developers" in metadata
    assert "Project-URL: Homepage, https://github.com/marsrec/marsrec" in metadata


def test_the_python_of_the_readme_runs_where_only_the_wheel_is_installed(wheel: Path, tmp_path: Path) -> None:
    site, folder = tmp_path / "site", tmp_path / "elsewhere"
    folder.mkdir()
    items = ["tea", "milk", "sugar", "jam", "bread", "salt"]
    rows = [f"{4711 + user},{items[(user + i) % 6]},{1_700_000_000 + 3600 * i}" for user in range(20) for i in range(8)]
    (folder / "shop.csv").write_text("\n".join(["user,item,time", *rows]), encoding="utf-8")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile")
    run(*pip, "--target", site, wheel, folder=tmp_path)
    code = [code for title, code in blocks(ROOT / "README.md", "python") if title is None]
    assert any("Recommender" in block for block in code)
    (folder / "blocks").write_text("\0".join(code), encoding="utf-8")
    # Not compiled, which would take longer than all the rest: kernels are kept by the place of their files.
    quick = {"PYTHONPATH": str(site), "NUMBA_DISABLE_JIT": "1"}
    run(sys.executable, "-c", RUN, site, folder=folder, **quick)
    version = run(
        sys.executable, "-c", "import importlib.metadata as m; print(m.version('marsrec'))", folder=folder, **quick
    )
    assert version.strip() == marsrec.__version__
    assert "recommend" in run(sys.executable, "-m", "marsrec", "--help", folder=folder, **quick)
