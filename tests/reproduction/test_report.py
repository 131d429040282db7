"""The report as a whole: sections in the paper's order, and each says what was not run."""

from pathlib import Path

from reproduction.report import report, sections
from tests.lab.made import result, write_with_ranks

from marsrec.lab.page import Picture, Table

NAMES = [
    "as-printed",
    "main",
    "ablation",
    "sensitivity",
    "efficiency",
    "subgroups",
    "same-time",
    "entropy",
    "rule",
    "extensions",
    "theory",
]


def words(part: str | Table | Picture) -> str:
    """All words of a part."""
    if isinstance(part, Table):
        return " ".join(cell for row in part.rows for cell in row)
    return part if isinstance(part, str) else ""


def test_without_results_every_section_says_that_it_was_not_run(tmp_path: Path) -> None:
    listed = sections([], tmp_path)
    assert [section.name for section in listed] == [*NAMES, "everything"]
    for section in listed[:-1]:
        assert "not run" in " ".join(map(words, section.parts)).lower(), section.name


def test_what_was_run_stands_in_all_sections_that_it_belongs_to(tmp_path: Path) -> None:
    """Hits of mars-t and of sasrec, its backbone, on the pages."""
    ranks = {"sasrec": [1.0] * 200 + [99.0] * 200, "mars-t": [1.0] * 300 + [99.0] * 100}
    found = [result("sasrec", 0.50), result("mars-t", 0.75)]
    for one in found:
        write_with_ranks(tmp_path, one, ranks[one.model], [5] * 400)
    written = {
        path.stem: path.read_text() for path in report(found, tmp_path, tmp_path / "out")[:-1] if path.suffix == ".md"
    }
    for name, figure in (
        ("main", "*75.00*"),
        ("ablation", "75.00"),
        ("subgroups", "+50.0%"),
        ("everything", "75.00"),
    ):
        assert figure in written[name], name
