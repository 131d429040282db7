"""Mistakes end in one sentence, not in a traceback."""

import sys
import warnings
from pathlib import Path

import pytest
from tests.cli.calls import refused

from marsrec.cli import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "no-such-file.csv"], "no such file"),
        (["fit", "beuty"], "beauty"),
        (["fit", "no-such-file.csv", "--model", "mars-x"], "unknown model 'mars-x'"),
        (["fit", "no-such-file.csv", "--model", "sasrec", "--heads", "2"], "or 'mars' has"),
        (["recommend", ".", "--user", "u1"], "holds no saved recommender"),
        (["recommend", "nowhere", "--user", "u1"], "there is no such folder"),
        (["recommend", "nowhere"], "say for whom"),
        (["explain", "nowhere"], "say whose history"),
    ],
)
def test_mistakes_are_named(arguments: list[str], message: str) -> None:
    assert message in refused(*arguments)


def test_reading_options_do_not_apply_to_named_data() -> None:
    assert "do not apply" in refused("fit", "hawkes", "--min-rating", "4")


def ended(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[str, str]:
    """What `marsrec` writes to stdout and stderr before it ends with 1."""
    monkeypatch.setattr(sys, "argv", ["marsrec", *map(str, arguments)])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)  # put back after the test
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return out, err


def test_errors_are_one_sentence_on_stderr_and_exit_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.csv"
    broken.write_text("user,item,time\nann,tea,yesterday\n")
    out, err = ended(monkeypatch, capsys, "fit", broken)
    assert out == ""
    assert err.startswith("error: ")
    assert "broken.csv" in err
    assert "yesterday" in err


def test_a_setting_that_is_refused_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = ended(monkeypatch, capsys, "fit", "hawkes", "--epochs", 0)
    assert (out, err) == ("", "error: epochs: Input should be greater than or equal to 1 (found 0)\n")


def test_what_the_system_refuses_is_one_sentence(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    _, err = ended(monkeypatch, capsys, "recommend", saved, "--all-users", "--out", tmp_path / "file" / "all.csv")
    assert f"error: {tmp_path / 'file'}" in err  # maybe after a word on kernels that were compiled
