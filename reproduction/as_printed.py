"""The main comparison in the paper's own form: twelve models as columns, a row per data set and metric, twice."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from marsrec.lab.comparison import figures
from marsrec.lab.page import Section, Table, best
from marsrec.lab.results import Result
from reproduction.comparable import alike, find, published_name
from reproduction.published import MAIN, METRICS

ROWS = {"beauty": "beauty", "sports": "sports", "games-2018": "games", "ml-1m-recbole": "ml-1m", "yelp-2019": "yelp"}
"""Our data, and what the paper calls its own of that kind; ml-1m in the order that the paper trained on."""
MODELS = tuple(MAIN["beauty"])
"""The paper's twelve columns."""


def as_printed(found: Sequence[Result]) -> Table:
    """A row per data set, metric and source of the figures."""
    rows = []
    for data, published in ROWS.items():
        results = alike(found, data)
        runs = [find(results, model) for model in MODELS]
        for place, metric in enumerate(METRICS):
            ours = [round(mean(figures(run, metric)), 2) if run else None for run in runs]
            theirs = [MAIN[published][model][place] for model in MODELS]
            rows.append([data, metric, "ours", *ranked(ours)])
            rows.append([published_name(published), metric, "paper", *ranked(theirs)])
    caption = (
        "Test × 100, all items ranked; means over seeds where there are several. *Best* of a row, and (2) its second. "
        "A best among few is a best of few. games-2018 and yelp-2019 are of other years than the "
        "paper's Games and Yelp, so that their rows are no pairs. What differs significantly stands below, by data set."
    )
    return Table(["data", "metric", "whose", *MODELS], rows, caption)


def ranked(values: Sequence[float | None]) -> list[str]:
    """Figures as cells, the best and the second of them marked; equal ones alike.

    Examples
    --------
    >>> ranked([8.04, None, 8.84, 8.78]), ranked([None, 8.04]), ranked([4.4, 4.4, 4.1])
    (['8.04', '-', '*8.84*', '8.78 (2)'], ['-', '8.04'], ['*4.40*', '*4.40*', '4.10 (2)'])
    """
    order = sorted({value for value in values if value is not None}, reverse=True)
    if len(order) < 2:  # alone, and so the best of none
        return ["-" if value is None else f"{value:.2f}" for value in values]
    cells = {order[0]: best(f"{order[0]:.2f}"), order[1]: f"{order[1]:.2f} (2)"}
    return ["-" if value is None else cells.get(value, f"{value:.2f}") for value in values]


def section(found: Sequence[Result], folder: Path) -> Section:
    """The paper's table of the main results, with ours."""
    lead = "The table of the paper's main results, a row of ours above each of its rows. A dash: not run."
    return Section("as-printed", "The main results as the paper prints them", [lead, as_printed(found)])
