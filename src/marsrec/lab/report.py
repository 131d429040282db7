"""A report on any results: its pages, from whatever there is."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import contests
from marsrec.lab.page import Section, write_report
from marsrec.lab.pages import curves, everything, groups, inspection, models
from marsrec.lab.results import Result

TITLE = "Results"


def report(found: Sequence[Result], results: Path, out: Path, *, against: str | None = None) -> list[Path]:
    """Write the report.

    Parameters
    ----------
    found : sequence of Result
        What to report.
    results : Path
        The folder that they are from, with their ranks and inspections.
    out : Path
        The folder to write.
    against : str, optional
        Name of the model that the others are compared with; by default the best one by validation.

    Returns
    -------
    list of Path
        The files, the HTML page last.
    """
    lead = f"Written by `marsrec lab report` from {len(found)} results in `{results.name}/`."
    return write_report(sections(found, results, against), out, title=TITLE, lead=lead)


def sections(found: Sequence[Result], results: Path, against: str | None = None) -> list[Section]:
    """All pages, in their order."""
    compared = contests(found, against)
    return [
        models.section(compared, results),
        groups.section(compared, results),
        curves.section(compared),
        *inspection.sections(compared, results),
        everything.section(found, results),
    ]
