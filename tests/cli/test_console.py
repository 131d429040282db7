"""What the terminal shows."""

import polars as pl
import pytest

from marsrec.cli import console
from marsrec.recommender.explanation import Explanation


def test_shown_shares_sum_to_the_score(capsys: pytest.CaptureFixture[str]) -> None:
    """Events that count most come first, also those against the item, and the others have a row together."""
    shares = [0.5, -2.0, 0.25, 0.25]
    terms = pl.DataFrame(
        {
            "event": [1, 2, 3, 4],
            "item": ["tea", "milk", "jam", "rye"],
            "time": [4, 3, 2, 1],
            "age": ["0 seconds"] * 4,
            "age_seconds": [0.0] * 4,
            "head": [1] * 4,
            "half_life": ["1 hour"] * 4,
            "half_life_seconds": [3600.0] * 4,
            "gate": [1.0] * 4,
            "share": shares,
        }
    )
    console.explanation(Explanation(score=0.0, last_state=1.0, terms=terms), "soap", top=2)
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    cells = [[cell for cell in row if cell != "│"] for row in rows if "│" in row]
    assert cells[-3:] == [
        ["2", "milk", "0", "seconds", "-2.0000"],
        ["1", "tea", "0", "seconds", "+0.5000"],
        ["2", "others", "+0.5000"],
    ]
