"""The paper's three propositions in numbers: what they say, what is measured, and where the two part.

`measure` computes, for minutes; `section` tells, from the measurements alone.
"""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from marsrec.errors import SettingsError
from marsrec.lab.page import Section
from marsrec.lab.theory import (
    approximation_section,
    complexity,
    complexity_section,
    identifiability,
    identifiability_section,
)
from marsrec.lab.theory.telling import Part, made_with
from marsrec.provenance import machine, versions

LAYOUT = 2
"""Of what `measure` returns; one without a layout is the first, without memory, settings, versions and machine."""


def measure(quick: bool = False) -> dict[str, Any]:
    """Everything that `section` tells, as numbers that can be written to JSON.

    Parameters
    ----------
    quick : bool
        Less of everything, in under a minute.
    """
    try:
        from marsrec.lab.theory import approximation
    except ModuleNotFoundError as error:  # only measuring needs it; a report tells what was measured elsewhere
        raise SettingsError(f"the propositions in numbers need {error.name}: pip install 'marsrec[lab]'.") from None
    return {
        "layout": LAYOUT,
        "quick": quick,
        "versions": versions() | {"scipy": version("scipy")},
        "machine": machine(),
        "approximation": approximation.measure(quick),
        "complexity": complexity.measure(quick),
        "identifiability": identifiability.measure(quick),
    }


def current(measured: Mapping[str, Any]) -> bool:
    """Whether a measurement has all that is told today.

    Examples
    --------
    >>> current({"layout": LAYOUT}), current({"quick": False})
    (True, False)
    """
    return bool(measured.get("layout", 1) == LAYOUT)


def section(measured: Mapping[str, Any] | None) -> Section:
    """The page "Theory in numbers", from what `measure` returned; None if it was not run."""
    parts: list[Part] = [
        "The paper gives three propositions. Here is what numbers say to each of them, where they can say something."
    ]
    if measured is None:
        return Section("theory", "Theory in numbers", [*parts, "Not run."])
    if measured["quick"]:
        parts.append("Measured in the quick form: smaller sizes, fewer repetitions and short trainings.")
    if not current(measured):
        parts.append("Measured by an older version, which recorded less. `marsrec lab theory` measures anew.")
    parts += approximation_section.tell(measured["approximation"])
    parts += complexity_section.tell(measured["complexity"], made_with(measured))
    parts += identifiability_section.tell(measured["identifiability"])
    return Section("theory", "Theory in numbers", parts)
