"""The models on users with short and long histories."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.lab.comparison import Contest, length_groups, marked, per_user
from marsrec.lab.page import Section, Table
from marsrec.training.settings import MONITOR


def section(contests: Sequence[Contest], folder: Path) -> Section:
    """The monitored metric by number of events before the test target."""
    parts: list[str | Table] = [
        f"Test {MONITOR} × 100 by number of events before the test target, the number of users in brackets. Small "
        "groups move by points from seed to seed."
    ]
    for contest in contests:
        parts += [f"## {contest.data}", table(contest, folder)]
    return Section("lengths", "By length of history", parts)


def table(contest: Contest, folder: Path) -> Table:
    """A row per model, a column per group that has users."""
    first, *_ = next(iter(contest.models.values()))
    groups = {label: users for label, users in length_groups(first, folder).items() if users.any()}
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
    return Table(["model", *labels], rows, "**Best**, *second*; mean ± standard deviation over seeds.")
