"""A result can be traced to the code that made it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from marsrec.provenance import commit, versions

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package in a checkout with one commit."""
    folder = tmp_path / "src" / "marsrec"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (tmp_path / ".gitignore").write_text(".venv/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=x", "-c", "user.email=x@example.org", "commit", "-q", "-m", "x")
    return folder


def git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", folder, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def asked(package: Path) -> str | None:
    return commit.__wrapped__(package)  # as in a new process


def test_the_commit_and_whether_the_code_differs(package: Path, tmp_path: Path) -> None:
    head = git(tmp_path, "rev-parse", "--short", "HEAD")
    assert asked(package) == head
    (tmp_path / "notes.md").write_text("not code")
    assert asked(package) == head
    (package / "new.py").write_text("")
    assert asked(package) == f"{head}+"
    (package / "new.py").unlink()
    (package / "__init__.py").write_text("x = 1\n")
    assert asked(package) == f"{head}+"


def test_no_commit_where_there_is_none(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = tmp_path / ".venv" / "marsrec"  # below a checkout, and no part of it
    shutil.copytree(package, installed)
    assert asked(installed) is None
    assert asked(tmp_path / "nowhere") is None
    monkeypatch.setenv("PATH", "")
    assert asked(package) is None


def test_versions_hold_the_commit_only_if_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("marsrec.provenance.commit", lambda package: "abc1234+")
    assert versions()["commit"] == "abc1234+"
    monkeypatch.setattr("marsrec.provenance.commit", lambda package: None)
    assert "commit" not in versions()
