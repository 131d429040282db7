"""Tables of the paper: each is a function from results to rows."""

from collections.abc import Sequence
from statistics import mean, stdev

from marsrec.data.catalog import CATALOG
from marsrec.lab import paper
from marsrec.lab.paper import METRICS
from marsrec.lab.results import Result
from marsrec.models import RECIPES, model_settings, paper_options

Table = tuple[list[str], list[list[str]]]
"""Columns and rows."""


def main_comparison(found: Sequence[Result], data: str) -> Table:
    """Every recipe on one data set at the paper's settings, beside the paper's figures; what was not run says so."""
    columns = ["model", *METRICS, "paper", "HR@10 against it", "best epoch", "minutes", "seeds"]
    published = paper.MAIN.get(data, {})
    rows = []
    for name in RECIPES:
        results = [result for result in found if result.data == data and is_papers(result, name)]
        theirs = published.get(name)
        beside = " / ".join(f"{figure:.2f}" for figure in theirs) if theirs else "none"
        if not results:
            rows.append([name, *["not run"] * 3, beside, "", "", "", ""])
            continue
        reached = 100 * mean(result.test["HR@10"] for result in results)
        rows.append(
            [
                name,
                *(_spread([100 * result.test[metric] for result in results]) for metric in METRICS),
                beside,
                f"{reached / theirs[0] - 1:+.1%}" if theirs else "",
                ", ".join(f"{result.best_epoch} of {result.epochs}" for result in results),
                f"{mean(result.minutes for result in results):.0f}",
                ", ".join(str(result.training.seed) for result in results),
            ]
        )
    return columns, rows


def everything(found: Sequence[Result], data: str) -> Table:
    """All results on one data set, whatever their settings."""
    columns = ["model", *METRICS, "best epoch", "minutes", "seed"]
    rows = [
        [
            result.model,
            *(f"{100 * result.test[metric]:.2f}" for metric in METRICS),
            f"{result.best_epoch} of {result.epochs}",
            f"{result.minutes:.0f}",
            str(result.training.seed),
        ]
        for result in found
        if result.data == data
    ]
    return columns, rows


def is_papers(result: Result, name: str) -> bool:
    """Whether a result is of a recipe at the paper's settings."""
    if result.model != name:
        return False
    options = paper_options(CATALOG[result.data].paper if result.data in CATALOG else None, name)
    average = result.statistics["average_length"]
    usual = type(result.training)(seed=result.training.seed, max_minutes=result.training.max_minutes)
    return result.settings == model_settings(name, average, options=options) and result.training == usual


def markdown(table: Table) -> str:
    """A table for a page."""
    columns, rows = table
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _spread(values: Sequence[float]) -> str:
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")
