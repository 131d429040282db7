"""The report of the paper: its tables and figures, as far as they were computed here, beside what it says."""

from collections.abc import Callable, Sequence
from pathlib import Path

from marsrec.lab.page import Section, write_report
from marsrec.lab.pages import everything
from marsrec.lab.results import Result
from reproduction import (
    ablation,
    as_printed,
    efficiency,
    entropy,
    extensions,
    inside,
    main_comparison,
    rule,
    same_time,
    sensitivity,
    subgroups,
    theory,
)

TITLE = "Results"
LEAD = (
    "Written by `python -m reproduction` from the files in `results/`: the tables and figures of the paper, as far as "
    "they were computed here, beside what the paper says. What was not run says so."
)

Page = Callable[[Sequence[Result], Path], Section | list[Section]]
"""Takes all results and their folder."""

PAGES: tuple[Page, ...] = (
    as_printed.section,
    main_comparison.section,
    ablation.section,
    sensitivity.section,
    efficiency.section,
    subgroups.section,
    same_time.section,
    entropy.section,
    rule.section,
    extensions.section,
    inside.sections,
    theory.section,
    everything.section,
)
"""In the paper's order. A new page is a file, named after it, and a line here."""


def report(found: Sequence[Result], results: Path, out: Path) -> list[Path]:
    """Write the report; the files that were written, the HTML page last."""
    return write_report(sections(found, results), out, title=TITLE, lead=LEAD)


def sections(found: Sequence[Result], results: Path) -> list[Section]:
    """All pages."""
    listed: list[Section] = []
    for page in PAGES:
        made = page(found, results)
        listed += [made] if isinstance(made, Section) else made
    return listed
