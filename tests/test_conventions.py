"""What stands around the package: workflows, citation, changelog, container file. Each passes its linter."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

import marsrec
from marsrec.models import RECIPES

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
FORMS = [path for path in sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml")) if path.stem != "config"]
OURS = {"mars-t", "mars-m", "hawkes-t", "hawkes-m"}


def lint(tool: str, *arguments: str | Path) -> None:
    """Run a linter of this environment; what it finds is the failure."""
    beside = Path(sys.executable).with_name(tool)
    found = str(beside) if beside.exists() else shutil.which(tool)
    if found is None:
        pytest.skip(f"{tool} is not installed (extra dev)")
    done = subprocess.run([found, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.dependabot", [ROOT / ".github/dependabot.yml"]),
        ("vendor.github-issue-forms", FORMS),
        ("vendor.github-issue-config", [ROOT / ".github/ISSUE_TEMPLATE/config.yml"]),
        ("vendor.citation-file-format", [ROOT / "CITATION.cff"]),
    ],
)
def test_files_keep_to_their_schema(schema: str, files: list[Path]) -> None:
    lint("check-jsonschema", "--builtin-schema", schema, *files)


def test_workflows_are_safe() -> None:
    """Actions pinned by hash, least permissions, no credentials left behind, nothing injected into shells."""
    lint("zizmor", "--offline", "--quiet", "--no-progress", ".github")


def test_the_container_file_passes_its_linter() -> None:
    lint("hadolint", "Containerfile")


def test_the_hooks_are_valid() -> None:
    lint("pre-commit", "validate-config", ".pre-commit-config.yaml")


def test_workflows_test_each_python_that_we_name() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/tests.yml").read_text("utf-8"))["jobs"]["tests"]["strategy"][
        "matrix"
    ]
    named = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert matrix["python"] == named
    assert {system.partition("-")[0] for system in matrix["system"]} == {"ubuntu", "macos", "windows"}


def test_text_files_name_their_encoding() -> None:
    """Else it is the system's, which on Windows is not UTF-8."""
    unnamed = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for room in ("src", "reproduction")
        for path in (ROOT / room).rglob("*.py")
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in ("read_text", "write_text")
        and len(call.args) <= (call.func.attr == "write_text")
        and not any(keyword.arg == "encoding" for keyword in call.keywords)
    ]
    assert not unnamed


def test_one_version() -> None:
    assert "version" in PROJECT["dynamic"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert latest
    assert marsrec.__version__ == citation["version"] == latest[1]
    assert f"version = {{{marsrec.__version__}}}" in (ROOT / "docs/citing.md").read_text("utf-8")


def test_every_baseline_can_be_cited() -> None:
    entries = re.findall(r"^@\w+\{([\w-]+),", (ROOT / "docs/references.bib").read_text("utf-8"), re.MULTILINE)
    assert len(entries) == len(set(entries))
    assert {"mars", *RECIPES} - OURS <= set(entries)
    page = (ROOT / "docs/citing.md").read_text("utf-8")
    assert all(f"`{name}`" in page for name in set(RECIPES) - OURS)


def test_what_is_asked_for_is_pinned() -> None:
    pinned = {
        re.sub(r"[-_.]+", "-", line.partition("==")[0]).lower()
        for line in (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    }
    wanted = [
        *PROJECT["dependencies"],
        *(name for extra in PROJECT["optional-dependencies"].values() for name in extra),
    ]
    names = {re.sub(r"[-_.]+", "-", Requirement(line).name).lower() for line in wanted}
    assert names - pinned <= {"marsrec", "wandb"}  # wandb is tried by hand alone
