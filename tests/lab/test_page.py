"""Reports are written whole: a page per section, figures in two formats, and one HTML page that needs nothing else."""

import re
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.text import Text

from marsrec.lab.page import Picture, Section, Table, best, significant, write_report
from marsrec.lab.plot import name_points, plot


def draw() -> object:
    figure, (axis,) = plot()
    axis.plot([1, 2], [3, 4])
    axis.set_xlabel("age, hours")
    return figure


SECTIONS = [
    Section(
        "one",
        "First & foremost",
        [
            "Some `code`, **bold** < 3.",
            "## Part",
            Table(["model", "HR@10"], [["sasrec", best("8.0")], ["mars-t", significant("+0.8")]], "× 100."),
            Picture("line", 'A "line".', draw),  # type: ignore[arg-type]
            "- a\n- b",
        ],
    ),
    Section("two", "Second", ["Not run."]),
]


class Tags(HTMLParser):
    """Which tags are open, and what was seen."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta", "img"):
            self.open.append(tag)
        self.ids += [given["id"]] if given.get("id") else []
        self.links += [given["href"]] if given.get("href") else []
        self.sources += [given["src"]] if given.get("src") else []

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_a_report_on_disk(tmp_path: Path) -> None:
    written = write_report(SECTIONS, tmp_path, title="Results", lead="All.")
    assert {str(path.relative_to(tmp_path)) for path in written} == {
        "README.md",
        "one.md",
        "two.md",
        "figures/line.svg",
        "figures/line.png",
        "report.html",
    }
    page = (tmp_path / "one.md").read_text()
    assert "| sasrec | *8.0* |\n| mars-t | **+0.8** |" in page
    assert '![A "line".](figures/line.svg)' in page
    assert (tmp_path / "figures/line.png").read_bytes().startswith(b"\x89PNG")
    assert "[Second](two.md)" in (tmp_path / "README.md").read_text()


def test_the_html_page_is_well_formed_and_needs_nothing_else(tmp_path: Path) -> None:
    text = write_report(SECTIONS, tmp_path, title="Results", lead="All.")[-1].read_text()
    tags = Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.links == ["#one", "#two"]
    assert tags.ids == ["one", "two"]
    assert all(source.startswith("data:image/svg+xml;base64,") for source in tags.sources)
    assert not re.search(r"https?://", text.replace("http://www.w3.org", ""))
    assert "First &amp; foremost" in text
    assert "<b>bold</b> &lt; 3" in text
    assert "<li>a</li><li>b</li>" in text


def test_the_same_report_is_the_same_files(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_report(SECTIONS, tmp_path / name, title="Results", lead="All.")
    for path in (tmp_path / "a").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "b" / path.relative_to(tmp_path / "a")).read_bytes()


def test_what_the_last_report_had_and_this_one_has_not_is_gone(tmp_path: Path) -> None:
    (tmp_path / "mine.md").write_text("not of the report")
    write_report(SECTIONS, tmp_path, title="Results", lead="All.")
    write_report(SECTIONS[1:], tmp_path, title="Results", lead="All.")
    assert {path.name for path in tmp_path.rglob("*.*")} == {
        "README.md",
        "two.md",
        "report.html",
        "mine.md",
        ".report.json",
    }


@pytest.mark.parametrize("apart", [0.001, 0.03, 0.1])
def test_names_cover_neither_each_other_nor_other_points(apart: float) -> None:
    points = {f"recipe {k}": (0.5 + apart * (k % 3), 0.5 + apart * (k // 3)) for k in range(9)}
    figure, (axis,) = plot(width=6.4, height=4.2)
    axis.set(xlim=(0, 1), ylim=(0, 1))
    name_points(axis, points, bold=["recipe 4"])
    figure.draw_without_rendering()
    boxes = {text.get_text(): Text.get_window_extent(text) for text in axis.texts}  # without their lines
    assert list(boxes) == list(points)
    assert not any(one.overlaps(other) for one, other in combinations(boxes.values(), 2))
    for name, box in boxes.items():
        assert not any(box.contains(*axis.transData.transform(place)) for place in points.values())
        assert axis.bbox.count_contains(box.corners()) == 4, name
    assert [text.get_text() for text in axis.texts if text.get_weight() == "bold"] == ["recipe 4"]
