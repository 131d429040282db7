"""The order of the rooms, by the import graph: none reaches forward, into what is private, or out of the package.

The order itself stands in the docstring of `marsrec/__init__.py`.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import marsrec

PACKAGE = Path(marsrec.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ENTRANCES = {"__init__", "__main__"}
"""Files at the top that hand on what the rooms hold: they import from all, and no room imports from them."""


class Import(NamedTuple):
    """One name that a line imports, inside of functions and for type checkers included."""

    place: str
    module: str
    name: str | None


def rooms() -> list[str]:
    """The rooms in their order."""
    lines = re.findall(r"^- (`.+?):", str(marsrec.__doc__), re.MULTILINE)
    return [name for line in lines for name in re.findall(r"`(\w+)`", line)]


def room_of(file: Path) -> str:
    """The part of the package's top that a file belongs to."""
    return file.relative_to(PACKAGE).with_suffix("").parts[0]


def imports(file: Path) -> Iterator[Import]:
    """What a file imports, from this package and from others."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        place = f"{file.relative_to(PACKAGE)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            yield from (Import(place, alias.name, None) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.module, f"{place} imports from '.': write the whole name, marsrec..."
            yield from (Import(place, node.module, alias.name) for alias in node.names)


def imported_rooms(file: Path) -> Iterator[tuple[str, str]]:
    """Where a file imports from this package, and from which room."""
    for place, module, name in imports(file):
        if module == "marsrec":
            if name != "__version__":
                yield place, str(name)
        elif module.startswith("marsrec."):
            yield place, module.split(".")[1]


def test_every_room_has_its_place_in_the_order() -> None:
    there = {room_of(file) for file in FILES} - ENTRANCES
    listed = rooms()
    assert len(listed) == len(set(listed))
    assert there == set(listed), "the list in marsrec/__init__.py and the folder differ"


def test_no_room_reaches_forward() -> None:
    order = rooms()
    forward = [
        f"{place} imports {room}, which comes later"
        for file in FILES
        if room_of(file) not in ENTRANCES
        for place, room in imported_rooms(file)
        if room not in order or order.index(room) > order.index(room_of(file))
    ]
    assert not forward


FOREIGN = {"_getframe", "_exit", "_C", "_source_stamp"}
"""Private names of sys, os, torch and numba, which have no public ones for these."""


def test_private_names_stay_in_their_file() -> None:
    """They are neither imported nor reached through an object: who reads `a._b` stands in the file that makes `_b`."""
    reached = []
    for file in FILES:
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        made = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        made |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        attributes = [node for node in nodes if isinstance(node, ast.Attribute)]
        made |= {node.attr for node in attributes if ast.unparse(node.value) in ("self", "cls")}
        reached += [
            f"{file.relative_to(PACKAGE)}:{node.lineno} reads {ast.unparse(node)}"
            for node in attributes
            if is_private(node.attr) and node.attr not in made | FOREIGN
        ]
        reached += [
            f"{place} imports {name} of {module}"
            for place, module, name in imports(file)
            if module.split(".")[0] == "marsrec" and is_private(name or "")
        ]
    assert not reached


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def test_the_package_knows_nothing_of_what_stands_around_it() -> None:
    outside = {"reproduction", "benchmarks", "tests", "examples", "experiments"}
    found = [
        f"{place} imports {module}"
        for file in FILES
        for place, module, _ in imports(file)
        if module.split(".")[0] in outside
    ]
    assert not found
