"""The models on groups of users: short and long histories, targets at the same time and later ones."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from marsrec.lab.comparison import Contest, length_groups, marked, parts_of, per_user, time_groups
from marsrec.lab.page import Section, Table
from marsrec.training.settings import MONITOR


def section(contests: Sequence[Contest], folder: Path) -> Section:
    """The monitored metric by number of events before the target, and by the time since the latest of them."""
    found = (result for contest in contests for results in contest.models.values() for result in results)
    parts: list[str | Table] = [
        f"{parts_of(found)} {MONITOR} × 100 by number of events before the target, and by whether the target has the "
        "time of the latest of them: then only the order of the file tells what comes next. The number of "
        "targets stands in brackets. Small groups move by points from seed to seed."
    ]
    for contest in contests:
        first, *_ = next(iter(contest.models.values()))
        parts += [f"## {contest.data}: by length of history", table(contest, length_groups(first, folder), folder)]
        if by_time := time_groups(first, folder):
            parts += [f"## {contest.data}: by time of the target", table(contest, by_time, folder)]
    return Section("groups", "By group", parts)


def table(contest: Contest, groups: Mapping[str, NDArray[np.bool_]], folder: Path) -> Table:
    """A row per model, a column per group that has users."""
    groups = {label: users for label, users in groups.items() if users.any()}
    # Each model's figures in each group, one per seed.
    reached = {
        name: [
            [100 * per_user([result], folder, MONITOR)[users].mean() for result in results] for users in groups.values()
        ]
        for name, results in contest.models.items()
    }
    columns = list(zip(*reached.values(), strict=True))
    rows = [[name, *map(marked, of_groups, columns)] for name, of_groups in reached.items()]
    labels = [f"{label} ({int(users.sum()):,})" for label, users in groups.items()]
    return Table(["model", *labels], rows, "*Best* of the column; mean ± standard deviation over seeds.")
