"""MARS with one thing changed: what the pages on ablations and extensions share."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from marsrec.lab.comparison import Cell, change, figures, spread, told
from marsrec.lab.page import Picture, Table
from marsrec.lab.results import Result
from reproduction.comparable import alike, as_published, datasets, find, published_name, trained
from reproduction.published import METRICS, Figures, against, not_run, shown

MARS = ("mars-t", "mars-m")

Variant = tuple[str, str | None, dict[str, Any]]
"""What is changed: in words, another readout, and options."""

FULL: Variant = ("all parts", None, {})
"""What variants are compared with."""


def in_words(variants: Mapping[str, Variant]) -> str:
    """Variants as a list."""
    return "\n".join(f"- {name}: {words}" for name, (words, _, _) in variants.items())


def tables(
    found: Sequence[Result],
    folder: Path,
    variants: Mapping[str, Variant],
    published: Mapping[str, Mapping[str, Mapping[str, Figures]]],
) -> list[str | Table | Picture]:
    """A table for all data and recipes that variants were run on; `published` has the paper's, by recipe and data.

    On the paper's data any of the variants will do, if only the full model: the others then say that they were not run.
    """
    parts: list[str | Table | Picture] = []
    lacking = {recipe: list(data) for recipe, data in published.items()}
    for data in datasets(found):
        results, name = alike(found, data), published_name(data)
        for recipe in MARS:
            runs = {
                variant: find(results, recipe, readout=readout, options=options)
                for variant, (_, readout, options) in variants.items()
            }
            own = ("full", "backbone") if recipe == "mars-t" else ("full",)  # stand in the main comparison, too
            changed = any(run and run != runs["full"] for variant, run in runs.items() if variant not in own)
            in_paper = name in published.get(recipe, {}) and as_published(results)
            if not changed and not (in_paper and any(runs.values())):
                continue
            if in_paper:
                lacking[recipe] = [other for other in lacking[recipe] if other != name]
            theirs = published[recipe][name] if in_paper else {}
            parts += [f"## {recipe} on {data}", _table(runs, theirs, folder, trained(results))]
    return [*parts, *not_run(lacking)]


def _table(runs: Mapping[str, Sequence[Result]], theirs: Mapping[str, Figures], folder: Path, training: str) -> Table:
    rows: list[list[Cell]] = []
    full = runs["full"]
    for name, run in runs.items():
        if name != "full" and run and run == full:
            continue  # what is changed is so on these data in any case
        figured = ["not run"] * len(METRICS)
        compared: list[Cell] = ["", ""]
        if run:
            figured = [spread(figures(run, metric)) for metric in METRICS]
        if run and name != "full":
            compared = [change(run, full, folder, metric) if full else "full: not run" for metric in METRICS[:2]]
        published = theirs.get(name)
        ratio = f"{published[0] / theirs['full'][0] - 1:+.1%}" if published and name != "full" else ""
        ours = [mean(figures(run, metric)) for metric in METRICS] if run else []
        rows.append([name, *figured, *compared, ratio, shown(published), against(ours, published)])
    columns = ["variant", *METRICS, *(f"{metric} against full" for metric in METRICS[:2])]
    columns += ["HR@10 against full, paper", "paper", "against it"]
    if not theirs:
        columns, rows = columns[:-3], [row[:-3] for row in rows]
    return Table(columns, told(rows), f"Training: {training}.")
