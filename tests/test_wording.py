"""Sentences that puzzled readers do not come back."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TEXTS = [
    *ROOT.glob("*.md"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").glob("*.ipynb"),
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "src").rglob("*.html"),
    *(ROOT / "src").rglob("*.js"),
    *(ROOT / "reproduction").rglob("*.py"),
]
BANNED = (
    "a page that shows why",
    "another process is at",
    "asks from this machine for this machine",
    "decide nothing",
    "hears when it is asked",
    "moved and not narrowed",
    "of the 1 case",
    "our users do not decide",
    "show on a page why",
    "that another runner is at",
    "the users decide",
    "turn in circles",
    "users decide",
    "why what is recommended",
)


@pytest.mark.parametrize("phrase", BANNED)
def test_a_phrase_is_gone(phrase: str) -> None:
    found = [str(path.relative_to(ROOT)) for path in TEXTS if phrase in " ".join(path.read_text().split()).lower()]
    assert not found
