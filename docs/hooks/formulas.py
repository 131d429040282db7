"""Formulas become MathML when the site is built, which browsers show by themselves: no script, no fonts."""

import html
import re
from typing import Any

from latex2mathml.converter import convert

FORMULA = re.compile(r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=tag)>', re.S)

# What the converter leaves to the reader: room before the name of a function and after a semicolon, none after a sign.
SPACING = [
    (re.compile(r"(</(?:mi|mn|msub|msup)>)(<mi>(?:log|exp|tanh)</mi>)"), r'\1<mspace width="0.17em"/>\2'),
    (re.compile(r"<mi>;</mi>"), '<mo separator="true">;</mo>'),
    (re.compile(r"((?:\(|&#x00028;)</mo>|<mrow>)<mo>&#x02212;</mo>"), r'\1<mo form="prefix">&#x02212;</mo>'),
]


def on_page_content(content: str, **_: Any) -> str:
    """Replace what `pymdownx.arithmatex` marked."""
    return FORMULA.sub(_mathml, content)


def _mathml(found: re.Match[str]) -> str:
    display = "block" if found["open"] == "[" else "inline"
    mathml: str = convert(html.unescape(found["latex"]), display=display)
    for pattern, spaced in SPACING:
        mathml = pattern.sub(spaced, mathml)
    return mathml
