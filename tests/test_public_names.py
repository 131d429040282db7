"""What can be imported from `marsrec` itself, and that it is all that its signatures need."""

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from typing import Any

import pytest

import marsrec

NAMES = [name for name in marsrec.__all__ if name != "__version__"]
ONLY_RETURNED = {"Reading"}
"""What a call of the operator `MARS` gives: nobody makes one, and its name says little without the operator."""


@pytest.mark.parametrize("name", NAMES)
def test_every_name_imports_and_is_described(name: str) -> None:
    found = getattr(marsrec, name)
    assert found.__name__ == name
    assert inspect.getdoc(found)
    assert name in dir(marsrec)


@pytest.mark.parametrize("name", NAMES)
def test_every_class_in_a_public_signature_is_exported(name: str) -> None:
    named = {kind.__name__ for function in callables(getattr(marsrec, name)) for kind in classes(function)}
    assert named <= {*NAMES, *ONLY_RETURNED}


def test_the_three_lists_of_names_are_one() -> None:
    checked = {
        alias for _, alias in re.findall(r"^    from (\S+) import \w+ as (\w+)$", inspect.getsource(marsrec), re.M)
    }
    assert checked == set(marsrec._HOMES) == set(NAMES)


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="'marsrec' has no attribute 'recommend'"):
        marsrec.recommend  # noqa: B018


def test_importing_the_package_imports_nothing_heavy() -> None:
    code = "import sys, marsrec; print(*{'torch', 'polars', 'numpy', 'pydantic'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def callables(exported: Any) -> Iterator[Callable[..., Any]]:
    """A function, or the constructor of a class and the methods whose parameters are documented for users."""
    if not inspect.isclass(exported):
        yield exported
        return
    if "__init__" in vars(exported) and not is_dataclass(exported):  # results are made here, not by people
        yield exported.__init__
    for name, member in inspect.getmembers_static(exported):
        function = getattr(member, "__func__", member)
        ours = inspect.isfunction(function) and function.__module__.startswith("marsrec.")
        if ours and not name.startswith("_") and "Parameters\n" in str(function.__doc__):
            yield function


def classes(function: Callable[..., Any]) -> Iterator[type]:
    """Classes of this package in the annotations of a function."""
    known = {name: getattr(marsrec, name) for name in NAMES}
    left = list(typing.get_type_hints(function, localns=known).values())
    while left:
        hint = left.pop()
        left += typing.get_args(hint)
        if inspect.isclass(hint) and hint.__module__.startswith("marsrec."):
            yield hint
