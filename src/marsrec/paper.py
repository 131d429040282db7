"""What the paper sets on its data sets. All other data take what their density suggests: see `marsrec.models`.

What `mars` has beyond the paper on a log of one's own stands beside it.
"""

from typing import Any

from marsrec.models import DENSE_FROM, Choice, model_settings
from marsrec.nn.encoders.base import EncoderSettings
from marsrec.nn.objectives.base import ObjectiveSettings
from marsrec.nn.readouts.base import ReadoutSettings
from marsrec.nn.scorers import ScorerSettings
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
    data: str | None,
    model: str,
    encoder: Choice[EncoderSettings] = None,
    readout: Choice[ReadoutSettings] = None,
    scorer: Choice[ScorerSettings] = None,
    objective: Choice[ObjectiveSettings] = None,
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
    sparse, dense = (
        model_settings(model, length, encoder=encoder, readout=readout, scorer=scorer, objective=objective)
        for length in (0.0, DENSE_FROM)
    )

    def usual(kind: str, field: str) -> Any:
        """What sparse data have where neither the recipe nor the caller gives a value; else None."""
        few, many = (getattr(getattr(settings, kind), field, None) for settings in (sparse, dense))
        return None if few == many else few

    if (dropout := usual("encoder", "dropout")) is not None:
        options["encoder.dropout"] = min(paper.dropout, dropout)
    if usual("readout", "heads") is not None:
        options["readout.heads"] = paper.heads
    if usual("readout", "dropout") is not None:
        options["readout.dropout"] = 0.0  # the paper mentions none on the user vector
    return options


def shipped_options(data: str | None, model: str) -> dict[str, Any]:
    """What `mars` has on a log of one's own, and not in the paper; nothing on public data or for a model by its name.

    Examples
    --------
    >>> shipped_options(None, "mars"), shipped_options("beauty", "mars"), shipped_options(None, "mars-t")
    ({'scorer.repeats': True}, {}, {})
    """
    return {"scorer.repeats": True} if model == "mars" and data not in PAPER else {}
