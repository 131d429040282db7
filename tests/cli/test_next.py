"""Commands that are printed can be pasted, whatever paths and ids are called."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest
from tests.cli.calls import call, outputs
from tests.synthetic import cyclic_log

USER, ITEM = 'O\'Hara & "sons" $HOME', "it's; `ls`"


def commands(remarks: str) -> list[list[str]]:
    """The words of the commands in what was printed, as a shell sees them."""
    lines = re.findall(r"^(?:Why: |.*Next: )? *(marsrec .*)$", remarks, re.MULTILINE)
    for line in lines:
        seen = subprocess.run(["sh", "-c", f"printf '%s\\n' {line}"], capture_output=True, text=True, check=True)
        assert seen.stdout.splitlines() == shlex.split(line)
    return [shlex.split(line) for line in lines]


@pytest.mark.skipif(sys.platform == "win32", reason="quoted for a POSIX shell")
def test_what_comes_next_can_be_pasted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = cyclic_log(users=20, events=8, items=5)
    log = log.with_columns(pl.col("user").replace({"u0": USER}), pl.col("item").replace({"i1": ITEM}))
    log.write_csv("my log.csv")
    quick = ["--model", "mars-t", "--epochs", 1, "--dim", 8, "--length", 8]
    remarks = outputs("fit", "my log.csv", *quick, "--out", "my models/m 1")[1]
    recommend, explain, evaluate = commands(remarks)
    assert recommend == ["marsrec", "recommend", "my models/m 1", "--user", USER]
    assert explain == ["marsrec", "explain", "my models/m 1", "--user", USER]
    call(*evaluate[1:])
    call(*explain[1:], "--item", ITEM)
    remarks = outputs(*recommend[1:], "--keep-seen", "--candidate", ITEM)[1]
    ((*_, user, _, item),) = commands(remarks)
    assert (user, item) == (USER, ITEM)
    ((*_, prepared),) = commands(outputs("prepare", "my log.csv", "--out", "my data")[1])
    assert prepared == "my data"


def test_what_comes_next_imports_the_same_modules(tmp_path: Path) -> None:
    cyclic_log(users=6).write_csv(tmp_path / "log.csv")
    for imports in (["--import", "json", "--import", "csv"], []):
        said = outputs(*imports, "prepare", tmp_path / "log.csv", "--out", tmp_path / "data")[1]
        assert shlex.split(said.rpartition("Next: ")[2]) == ["marsrec", *imports, "fit", str(tmp_path / "data")]
