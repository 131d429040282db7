"""What the paper sets on its data sets. All other data take what their density suggests: see `marsrec.models`."""

from typing import Any

from marsrec.models import has_own_dropout, model_settings, sparse_dropout
from marsrec.settings import Settings


class PaperSettings(Settings):
    """What the paper sets differently from one data set to the next."""

    length: int
    """Number of latest events that a model sees."""
    dropout: float
    """Dropout of the encoder."""
    heads: int
    """Number of decay rates of MARS."""


SPARSE = PaperSettings(length=50, dropout=0.5, heads=4)
GAMES = PaperSettings(length=50, dropout=0.2, heads=4)
DENSE = PaperSettings(length=200, dropout=0.2, heads=8)

PAPER = {
    "beauty": SPARSE,
    "sports": SPARSE,
    "games": GAMES,
    "ml-1m": DENSE,
    "ml-100k": DENSE,
    "yelp": SPARSE,
    "games-2018": GAMES,
    "yelp-2019": SPARSE,
}
"""The paper's settings by the name of a data set in the catalog."""


def paper_options(
    data: str | None, model: str, encoder: str | None = None, readout: str | None = None
) -> dict[str, Any]:
    """What the paper sets on a public data set, as far as the model has it; nothing on other data.

    Examples
    --------
    >>> paper_options("ml-1m", "sasrec")
    {'length': 200, 'encoder.dropout': 0.2}
    >>> paper_options(None, "sasrec")
    {}
    """
    if data not in PAPER:
        return {}
    paper = PAPER[data]
    options: dict[str, Any] = {"length": paper.length}
    if not has_own_dropout(model, encoder):
        options["encoder.dropout"] = min(paper.dropout, sparse_dropout(model, encoder))
    if model_settings(model, encoder=encoder, readout=readout).readout.name == "mars":
        options["readout.heads"] = paper.heads
        options["readout.dropout"] = 0.0  # the paper mentions none on the user vector
    return options
