"""What says that an extra is missing, and which."""

import builtins
import importlib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from marsrec.errors import SettingsError, needs

ROOT = Path(__file__).parents[1]


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Let imports of a package fail as they do where it is not installed."""
    imported = builtins.__import__

    def import_(name: str, *arguments: Any, **options: Any) -> Any:
        if name.split(".")[0] == package:
            raise ModuleNotFoundError(f"No module named {package!r}", name=package)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", import_)


def call(place: str, *arguments: Any) -> Callable[[], Any]:
    module, name = place.split(":")
    return lambda: getattr(importlib.import_module(module), name)(*arguments)


@pytest.mark.parametrize(
    ("package", "use", "message"),
    [
        ("matplotlib", call("marsrec.lab.plot:plot"), r"drawing figures needs matplotlib.*marsrec\[plot\]"),
        ("matplotlib", call("marsrec.cli.demo:run", Path("nowhere")), r"picture needs matplotlib.*marsrec\[plot\]"),
        (
            "fastexcel",
            call("marsrec.data.formats:_open_excel", b"", Path("log.xlsx"), None),
            r"reading \.xlsx needs fastexcel.*marsrec\[excel\]",
        ),
        ("ray", call("marsrec.lab.cluster:on_ray", "local", [], None, 1), r"--ray needs ray.*marsrec\[ray\]"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, package: str, use: Callable[[], Any], message: str
) -> None:
    without(monkeypatch, package)
    with pytest.raises(SettingsError, match=message):
        next(iter(use() or ()))


def test_a_fault_of_our_own_is_not_taken_for_a_missing_extra() -> None:
    with pytest.raises(ModuleNotFoundError), needs("plot", "drawing"):
        import marsrec.no_such_room  # noqa: F401


def test_every_extra_that_is_named_exists() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    texts = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("src/**/*.py"), ROOT / "Containerfile"]
    named = {
        name.strip()
        for text in texts
        for several in re.findall(r"(?:marsrec|'\.|\"\.)\[([a-z, ]+)\]|needs\(\"(\w+)\"", text.read_text("utf-8"))
        for name in "".join(several).split(",")
    }
    assert {"serve", "plot", "postgres"} <= named <= extras
