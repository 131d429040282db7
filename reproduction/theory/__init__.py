"""The paper's three propositions in numbers: what they say, what is measured, and where the two part.

`measure` computes, for minutes; `page` shows, from the measurements alone.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from marsrec.atomic import atomic_file
from marsrec.errors import SettingsError
from marsrec.lab.page import Section
from marsrec.lab.results import Result
from marsrec.provenance import machine, versions
from reproduction.theory import (
    approximation_section,
    complexity,
    complexity_section,
    identifiability,
    identifiability_section,
)
from reproduction.theory.wording import Part, made_with

log = logging.getLogger("marsrec")

LAYOUT = 2
"""Of what `measure` returns; one without a layout is the first, without memory, settings, versions and machine."""

MEASURED = "theory/measured.json"
"""What `write` writes, beside the results."""


def measure(quick: bool = False) -> dict[str, Any]:
    """Everything that `page` shows, as numbers that can be written to JSON.

    Parameters
    ----------
    quick : bool
        Less of everything, in under a minute.
    """
    try:
        from reproduction.theory import approximation
    except ModuleNotFoundError as error:  # only measuring needs it; a report tells what was measured elsewhere
        raise SettingsError(f"the propositions in numbers need {error.name}: pip install scipy.") from None
    return {
        "layout": LAYOUT,
        "quick": quick,
        "versions": versions() | {"scipy": version("scipy")},
        "machine": machine(),
        "approximation": approximation.measure(quick),
        "complexity": complexity.measure(quick),
        "identifiability": identifiability.measure(quick),
    }


def write(results: Path, *, quick: bool = False) -> Path:
    """Measure, and write it beside the results; a full measurement is not replaced by a quick one."""
    path = results / MEASURED
    if quick and path.exists() and not json.loads(path.read_text(encoding="utf-8"))["quick"]:
        raise SettingsError(f"{path}: measured in full already. Delete it first, or name other --results.")
    log.info("Approximation by mixtures of exponentials, identifiability on hawkes data, cost of the operator …")
    found = measure(quick=quick)
    with atomic_file(path) as temporary:
        temporary.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return path


def suffices(results: Path, *, quick: bool) -> bool:
    """Whether there is a measurement as thorough as that; a full one has to be of today's layout, too."""
    path = results / MEASURED
    if not path.exists():
        return False
    found = json.loads(path.read_text(encoding="utf-8"))
    return quick or (not found["quick"] and current(found))


def current(measured: Mapping[str, Any]) -> bool:
    """Whether a measurement has all that is shown today.

    Examples
    --------
    >>> current({"layout": LAYOUT}), current({"quick": False})
    (True, False)
    """
    return bool(measured.get("layout", 1) == LAYOUT)


def section(found: Sequence[Result], results: Path) -> Section:
    """The page, from what `write` wrote."""
    path = results / MEASURED
    return page(json.loads(path.read_text(encoding="utf-8")) if path.exists() else None)


def page(measured: Mapping[str, Any] | None) -> Section:
    """The page "Theory in numbers", from what `measure` returned; None if it was not run."""
    parts: list[Part] = [
        "The paper gives three propositions. Here is what numbers say to each of them, where they can say something."
    ]
    if measured is None:
        return Section("theory", "Theory in numbers", [*parts, "Not run."])
    if measured["quick"]:
        parts.append("Measured in the quick form: smaller sizes, fewer repetitions and short trainings.")
    if not current(measured):
        parts.append(
            "Measured by an older version, which recorded less. `python -m reproduction theory` measures anew."
        )
    parts += approximation_section.tell(measured["approximation"])
    parts += complexity_section.tell(measured["complexity"], made_with(measured))
    parts += identifiability_section.tell(measured["identifiability"])
    return Section("theory", "Theory in numbers", parts)
