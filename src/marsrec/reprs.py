"""What objects look like: aligned text for consoles; HTML for notebooks, small, without scripts, in any theme.

The HTML is a tree of elements that the standard library writes, so ids and titles are text and nothing else.
"""

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, tostring

HEADS = ("#1f83c4", "#d55e00", "#009470", "#c0609a", "#a97800", "#9a6ae0", "#2b9eb3", "#777777")
"""A colour per head; each can be told from white and from black."""
REST = "#8a93a0"
"""The colour of what belongs to no head."""

Content = Element | str
Cell = Content | Sequence[Content]


def tag(name: str, *children: Content, **attributes: object) -> Element:
    """An element; text among its children is escaped where it is written.

    Examples
    --------
    >>> html(tag("p", "Tea ", tag("small", "<i1>"), title='"'))
    '<p title="&quot;">Tea <small>&lt;i1&gt;</small></p>'
    """
    made = Element(name, {key.rstrip("_"): str(value) for key, value in attributes.items()})
    for child in children:
        if isinstance(child, Element):
            made.append(child)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + child
        else:
            made.text = (made.text or "") + child
    return made


def html(*elements: Element) -> str:
    """Elements as text."""
    return "".join(tostring(element, encoding="unicode", method="html") for element in elements)


def grid(columns: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> Element:
    """A table: the first column is on the left, figures are on the right."""
    left, right = (
        "padding:.1em .4em;text-align:left",
        "padding:.1em .4em;text-align:right;font-variant-numeric:tabular-nums",
    )

    def line(kind: str, cells: Sequence[Cell], **attributes: str) -> Element:
        made = [
            tag(kind, *([cell] if isinstance(cell, Element | str) else cell), style=right if place else left)
            for place, cell in enumerate(cells)
        ]
        return tag("tr", *made, **attributes)

    parts = [tag("tbody", *(line("td", row) for row in rows))]
    if any(columns):
        parts.insert(0, tag("thead", line("th", columns)))
    if caption:
        parts.insert(0, tag("caption", caption, style=f"{left};caption-side:top;color:inherit;white-space:nowrap"))
    return tag("table", *parts, style="margin:.3em 0;border-collapse:collapse")


def bar(parts: Sequence[tuple[float, str]], span: tuple[float, float], width: str = "14em") -> Element:
    """Values one after the other, each in its colour: what is negative lies to the left of zero.

    Parameters
    ----------
    parts : sequence of (value, colour)
        What the bar is made of.
    span : (float, float)
        The least and the greatest end of all bars that stand below each other; 0 lies between them.
    width : str
        Of the whole span.
    """
    low, high = span
    scale = 100 / ((high - low) or 1)
    down = [(value, colour) for value, colour in parts if value < 0]
    up = [(value, colour) for value, colour in parts if value > 0]
    margin = scale * (sum(value for value, _ in down) - low)
    pieces = [
        tag(
            "span",
            style=f"display:inline-block;vertical-align:top;height:.8em;width:{scale * abs(value):.2f}%;"
            f"margin-left:{margin if not place else 0:.2f}%;background-color:{colour}",
        )
        for place, (value, colour) in enumerate(down + up)
    ]
    return tag("div", *pieces, style=f"width:{width};text-align:left;white-space:nowrap;font-size:1em;line-height:.8em")


def swatch(colour: str) -> Element:
    """A little square that names a colour."""
    return tag("span", style=f"display:inline-block;width:.7em;height:.7em;margin-right:.4em;background-color:{colour}")


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table as text: the first column is on the left, the others on the right.

    Examples
    --------
    >>> print(aligned(["", "@5", "@10"], [["HR", "0.1", "0.25"]]))
         @5   @10
    HR  0.1  0.25
    """
    lines = [columns, *rows] if any(columns) else list(rows)
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if place else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
