"""All models on each data set, and how they differ from one of them."""

from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from marsrec.lab.comparison import (
    EXPLAINED,
    METRICS,
    Cell,
    Contest,
    difference,
    figures,
    marked,
    parts_of,
    same_seeds,
    told,
    validation,
)
from marsrec.lab.page import Section, Table, digits
from marsrec.training.settings import MONITOR


def section(contests: Sequence[Contest], folder: Path) -> Section:
    """Models × metrics on each data set, and paired differences from the reference."""
    found = (result for contest in contests for results in contest.models.values() for result in results)
    parts: list[str | Table] = [
        f"{parts_of(found)} × 100, all items ranked. Models are listed by their validation metric. Those that have the "
        "same name are followed by the settings in which they differ."
    ]
    for contest in contests:
        parts += [f"## {contest.data}", table(contest)]
        if contest.reference is None:
            parts.append("The model to compare with was not run on these data.")
        elif contest.others:
            parts += [f"## {contest.data}: against {contest.reference}", differences(contest, folder)]
    return Section("models", "Models", parts)


def table(contest: Contest) -> Table:
    """A row per model."""
    columns = {metric: [figures(results, metric) for results in contest.models.values()] for metric in METRICS}
    rows = [
        [
            name,
            *(marked(figures(results, metric), columns[metric]) for metric in METRICS),
            f"{100 * validation(results):.2f}",
            ", ".join(f"{result.best_epoch} of {result.epochs}" for result in results),
            digits(mean(result.undisturbed_minutes for result in results)),
            ", ".join(str(result.training.seed) for result in results),
        ]
        for name, results in contest.models.items()
    ]
    return Table(
        ["model", *METRICS, f"valid {MONITOR}", "best epoch", "minutes", "seeds"],
        rows,
        "*Best* of the column; mean ± standard deviation over seeds. Minutes are epochs times those of the median one, "
        "as it went on the machine of each run.",
    )


def differences(contest: Contest, folder: Path) -> Table:
    """Each model less the reference, user by user."""
    assert contest.reference is not None
    reference = contest.models[contest.reference]
    rows: list[list[Cell]] = []
    for name, results in contest.others.items():
        seeds = " / ".join(str(len(of)) for of in same_seeds(results, reference))
        rows.append([name, *(difference(results, reference, folder, metric) for metric in METRICS), seeds])
    return Table(
        ["model", *METRICS, "seeds"],
        told(rows),
        f"Each model less {contest.reference}. {EXPLAINED}",
    )
