"""Formulas become MathML when the site is built, which browsers show by themselves: no script, no fonts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.S)


def on_page_content(content: str, **_: Any) -> str:
    """Replace what `pymdownx.arithmatex` marked."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["open"] == "[" else "inline"
    return convert(html.unescape(found["latex"]), display=display)
