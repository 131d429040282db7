"""Same time and later: what the order of the file decides, and what time may tell."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marsrec.evaluation.significance import paired
from marsrec.lab.comparison import EXPLAINED, Cell, density, marked, per_user, same_seeds, time_groups, told
from marsrec.lab.page import Section, Table
from marsrec.lab.results import Result
from marsrec.models import RECIPES, backbone
from reproduction.comparable import alike, find, trained, whole

METRICS = ("NDCG@10", "MRR@10")


def section(found: Sequence[Result], folder: Path) -> Section:
    """Every recipe, and MARS against the others, on targets at the time of the latest event and on later ones."""
    parts: list[str | Table] = [
        "Test × 100. A target has the time of the latest event before it, or a later one. At the same time only the "
        "order of the file decides what comes next, and where files list items in one order for all users, a model "
        "may learn that order."
    ]
    names = whole(found)
    for data in names:
        results = alike(found, data)
        groups = time_groups(results[0], folder)
        parts.append(f"## {data}")
        if not groups:
            parts.append("All targets are in one group, or the ranks were written without times.")
            continue
        runs = {name: run for name in RECIPES if (run := find(results, name))}
        parts.append(figures(runs, groups, folder, f"Training: {trained(results)}."))
        ours = backbone(density(results[0]))
        if ours in runs and len(runs) > 1:
            parts += [f"## {data}: {ours} against the others", differences(runs, ours, groups, folder)]
    return Section("same-time", "Same time and later", parts if names else [*parts, "Not run."])


def figures(
    runs: Mapping[str, Sequence[Result]], groups: Mapping[str, NDArray[np.bool_]], folder: Path, caption: str
) -> Table:
    """A row per recipe, a column per metric and group."""
    columns = [(metric, group) for metric in METRICS for group in groups]
    reached = {
        name: [
            [100 * per_user([result], folder, metric)[groups[group]].mean() for result in run]
            for metric, group in columns
        ]
        for name, run in runs.items()
    }
    by_column = list(zip(*reached.values(), strict=True))
    rows = [[name, *map(marked, cells, by_column)] for name, cells in reached.items()]
    labels = [f"{metric}, {group} ({int(groups[group].sum()):,})" for metric, group in columns]
    return Table(["model", *labels], rows, f"{caption} *Best* of the column; mean ± standard deviation over seeds.")


def differences(
    runs: Mapping[str, Sequence[Result]], ours: str, groups: Mapping[str, NDArray[np.bool_]], folder: Path
) -> Table:
    """MARS less each of the others, user by user."""
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        if name == ours:
            continue
        pair = same_seeds(runs[ours], run)
        gains = {metric: [per_user(of, folder, metric) for of in pair] for metric in METRICS}
        cells = [paired(*(of[users] for of in gains[metric])) for metric in METRICS for users in groups.values()]
        rows.append([name, *cells])
    labels = [f"{metric}, {group}" for metric in METRICS for group in groups]
    return Table([f"{ours} against", *labels], told(rows), f"{ours} less the other. {EXPLAINED}")
