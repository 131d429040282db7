"""What a report is made of, sections of text, tables and figures, and how it is written: Markdown, SVG, PNG, HTML."""

import base64
import html
import io
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from marsrec.atomic import atomic_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
"""Folder of the figures, beside the pages."""
MANIFEST = ".report.json"
"""List of the files that a report consists of."""


@dataclass(frozen=True)
class Table:
    """Rows under named columns. A cell may be marked: bold is statistically significant and nothing else."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""


@dataclass(frozen=True)
class Picture:
    """A figure that is drawn when the report is written."""

    name: str
    """Of its files, without their ending."""
    caption: str
    """What it shows; also what is read out to those who cannot see it."""
    draw: "Callable[[], Figure]"


@dataclass(frozen=True)
class Section:
    """A page of the report."""

    name: str
    """Of its file, without the ending."""
    title: str
    parts: Sequence[str | Table | Picture]
    """Paragraphs, tables and figures, in this order."""


def digits(value: float) -> str:
    """Three digits that mean something, and never a power of ten.

    Examples
    --------
    >>> digits(0.04321), digits(21.62), digits(1008.4)
    ('0.0432', '21.6', '1,008')
    """
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def best(text: str) -> str:
    """Mark a cell as the best of its column."""
    return f"*{text}*"


def significant(text: str) -> str:
    """Mark a cell as a difference that is statistically significant."""
    return f"**{text}**"


def write_report(sections: Sequence[Section], folder: Path, *, title: str, lead: str) -> list[Path]:
    """Write a Markdown page per section, their figures, an index, and one HTML page that holds everything.

    Parameters
    ----------
    sections : sequence of Section
        What to write.
    folder : Path
        Where. What an earlier report wrote there and this one does not is deleted; other files stay.
    title, lead : str
        Heading and first paragraph of the index and of the HTML page.

    Returns
    -------
    list of Path
        The files, the HTML page last.
    """
    written = []
    bodies = []
    for section in sections:
        drawn = {part.name: _drawn(part) for part in section.parts if isinstance(part, Picture)}
        for name, files in drawn.items():
            for ending, content in files.items():
                path = folder / FIGURES / f"{name}.{ending}"
                with atomic_file(path) as temporary:
                    temporary.write_bytes(content)
                written.append(path)
        written.append(_write(folder / f"{section.name}.md", markdown(section)))
        bodies.append(_html_section(section, {name: files["svg"].decode() for name, files in drawn.items()}))
    entries = "\n".join(f"- [{section.title}]({quote(section.name)}.md)" for section in sections)
    index = f"# {title}\n\n{lead}\n\n{entries}\n\nAll of it on one page: [report.html](report.html).\n"
    written.append(_write(folder / "README.md", index))
    links = "".join(f'<li><a href="#{s.name}">{html.escape(s.title)}</a></li>' for s in sections)
    page = _PAGE.format(title=html.escape(title), lead=_inline(lead), links=links, body="\n".join(bodies))
    written.append(_write(folder / "report.html", page))
    _forget(folder, {str(path.relative_to(folder)) for path in written})
    return written


def _forget(folder: Path, written: set[str]) -> None:
    """Delete what the last report wrote and this one did not: no figure is to outlive its result."""
    listed = folder / MANIFEST
    before = set(json.loads(listed.read_text(encoding="utf-8"))) if listed.exists() else set()
    for name in before - written:
        (folder / name).unlink(missing_ok=True)
    _write(listed, json.dumps(sorted(written), indent=0) + "\n")


def markdown(section: Section) -> str:
    """A section as a Markdown page.

    Examples
    --------
    >>> print(markdown(Section("x", "Sums", ["One.", Table(["a", "b"], [["1", "2"]])])), end="")
    # Sums
    <BLANKLINE>
    One.
    <BLANKLINE>
    | a | b |
    | --- | --- |
    | 1 | 2 |
    """
    blocks = [f"# {section.title}"]
    for part in section.parts:
        if isinstance(part, Table):
            lines = [part.columns, ["---"] * len(part.columns), *part.rows]
            blocks.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
            if part.caption:
                blocks.append(part.caption)
        elif isinstance(part, Picture):
            blocks.append(f"![{part.caption}]({quote(f'{FIGURES}/{part.name}.svg')})")
        else:
            blocks.append(part)
    return "\n\n".join(blocks) + "\n"


def _write(path: Path, text: str) -> Path:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return path


@contextmanager
def _reproducible() -> Iterator[None]:
    """The same figure is the same file: no dates, no random names."""
    import matplotlib

    with matplotlib.rc_context({"svg.hashsalt": "marsrec", "svg.fonttype": "path"}):
        yield


def _drawn(picture: Picture) -> dict[str, bytes]:
    import matplotlib.pyplot as plt

    figure = picture.draw()
    files = {}
    with _reproducible():
        for ending, options in (("svg", {"metadata": {"Date": None}}), ("png", {"dpi": 150})):
            buffer = io.BytesIO()
            figure.savefig(buffer, format=ending, **options)
            files[ending] = buffer.getvalue()
    plt.close(figure)
    return files


def _html_section(section: Section, svgs: dict[str, str]) -> str:
    blocks = [f'<section id="{section.name}"><h2>{html.escape(section.title)}</h2>']
    for part in section.parts:
        if isinstance(part, Table):
            head = "".join(f'<th scope="col">{_inline(cell)}</th>' for cell in part.columns)
            body = "".join(f"<tr>{''.join(f'<td>{_inline(cell)}</td>' for cell in row)}</tr>" for row in part.rows)
            caption = f"<p class='caption'>{_inline(part.caption)}</p>" if part.caption else ""
            blocks.append(
                f"<div class='wide'><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>{caption}"
            )
        elif isinstance(part, Picture):
            # As an image: ids inside one SVG cannot meet those of another.
            source = base64.b64encode(svgs[part.name].encode()).decode()
            caption = html.escape(part.caption)
            blocks.append(
                f'<figure><img alt="{caption}" src="data:image/svg+xml;base64,{source}">'
                f"<figcaption>{caption}</figcaption></figure>"
            )
        elif part.startswith("## "):
            blocks.append(f"<h3>{_inline(part[3:])}</h3>")
        elif part.startswith("- "):
            items = "".join(f"<li>{_inline(line[2:])}</li>" for line in part.splitlines())
            blocks.append(f"<ul>{items}</ul>")
        else:
            blocks.append(f"<p>{_inline(part)}</p>")
    return "\n".join([*blocks, "</section>"])


def _inline(text: str) -> str:
    """The few marks that our texts use: bold, emphasis, code."""
    text = html.escape(text)
    for mark, tag in (("**", "b"), ("*", "em"), ("`", "code")):
        pieces = text.split(mark)
        if len(pieces) % 2:  # marks come in pairs
            text = "".join(f"<{tag}>{p}</{tag}>" if index % 2 else p for index, p in enumerate(pieces))
    return text


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light; }}
body {{ font: 16px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 76rem; padding: 1rem 1.2rem 4rem;
  color: #1a1a1a; background: #fff; }}
h1, h2, h3 {{ line-height: 1.2; }} h2 {{ margin-top: 3rem; border-bottom: 1px solid #ccc; padding-bottom: .3rem; }}
nav ul {{ columns: 2; padding-left: 1.2rem; }} a {{ color: #0057a3; }}
.wide {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }}
th, td {{ padding: .25rem .6rem; text-align: right; white-space: nowrap; border-bottom: 1px solid #e5e5e5; }}
th {{ border-bottom: 2px solid #555; font-weight: normal; color: #555; }}
th:first-child, td:first-child {{ text-align: left; }}
tbody tr:hover {{ background: #f4f6f8; }} em {{ font-style: normal; text-decoration: underline; }}
figure {{ margin: 1.5rem 0; }} img {{ max-width: 100%; height: auto; }}
figcaption, .caption {{ color: #555; font-size: .88rem; max-width: 46rem; }}
</style></head><body>
<h1>{title}</h1><p>{lead}</p><nav aria-label="Sections"><ul>{links}</ul></nav>
{body}
</body></html>
"""
