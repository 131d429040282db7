"""What MARS learned on each data set, on the backbone that the rule takes and on the request clock."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import density
from marsrec.lab.page import Section
from marsrec.lab.pages import inspection
from marsrec.lab.results import Result, inspection_of
from marsrec.models import backbone
from reproduction.comparable import alike, find, whole


def sections(found: Sequence[Result], results: Path) -> list[Section]:
    """A page for each model that was inspected."""
    shown = []
    for data in whole(found):
        comparable = alike(found, data)
        ours = backbone(density(comparable[0]))
        for options in ({}, {"readout.clock": "request"}):
            for result in find(comparable, ours, options=options)[:1]:
                if inspected := inspection_of(result, results):
                    shown.append(inspection.section(f"inspection-{result.name}", inspected))
    return shown
