"""The paper's three propositions in numbers: what they say, what is measured, and where the two part.

`measure` computes, for minutes; `section` tells, from the measurements alone.
"""

from collections.abc import Mapping
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
from marsrec.lab.theory.telling import Part


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
        "quick": quick,
        "approximation": approximation.measure(quick),
        "complexity": complexity.measure(quick),
        "identifiability": identifiability.measure(quick),
    }


def section(measured: Mapping[str, Any]) -> Section:
    """The page "Theory in numbers", from what `measure` returned."""
    parts: list[Part] = [
        "The paper gives three propositions. Here is what numbers say to each of them, where they can say something."
    ]
    if measured["quick"]:
        parts.append("Measured in the quick form: smaller sizes, fewer repetitions and short trainings.")
    parts += approximation_section.tell(measured["approximation"])
    parts += complexity_section.tell(measured["complexity"])
    parts += identifiability_section.tell(measured["identifiability"])
    return Section("theory", "Theory in numbers", parts)
