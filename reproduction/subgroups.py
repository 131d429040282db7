"""Where MARS helps: users with short and long histories."""

from collections.abc import Sequence
from pathlib import Path

from marsrec.evaluation.significance import paired
from marsrec.lab.comparison import EXPLAINED, Cell, length_groups, per_user, same_seeds, told
from marsrec.lab.page import Section, Table
from marsrec.lab.results import Result
from reproduction.comparable import alike, as_published, find, published_name, trained, whole
from reproduction.published import SUBGROUPS, in_points, not_run

BASELINES = {"mars-t": "sasrec", "mars-m": "mamba4rec"}
"""What the paper compares the two with by length of history."""


def section(found: Sequence[Result], folder: Path) -> Section:
    """HR@10 for users with short and long histories."""
    parts: list[str | Table] = [
        "HR@10 × 100 by number of events before the test target: the baseline, MARS, and the relative gain; the "
        "last column is our gain less the paper's, in percentage points. Small groups move by points from seed to "
        f"seed; the number of users is given for that reason. {EXPLAINED}"
    ]
    lacking = {ours: [data for data, model in SUBGROUPS if model == ours] for ours in BASELINES}
    for data in whole(found):
        results, name = alike(found, data), published_name(data)
        for ours, baseline in BASELINES.items():
            pair = find(results, baseline), find(results, ours)
            if not all(pair):
                continue
            theirs = SUBGROUPS.get((name, ours)) if as_published(results) else None
            if theirs:
                lacking[ours] = [other for other in lacking[ours] if other != name]
            columns = ["events", "users", f"{baseline} → {ours}", "difference over users", "paper", "gain against it"]
            rows = _groups(*pair, folder, theirs)
            if not theirs:
                columns, rows = columns[:-2], [row[:-2] for row in rows]
            parts += [f"## {data}: {ours}", Table(columns, told(rows), f"Training: {trained(results)}.")]
    of_pairs = {f"{baseline} and {ours}": lacking[ours] for ours, baseline in BASELINES.items()}
    return Section("subgroups", "By length of history", [*parts, *not_run(of_pairs)])


def _groups(
    base: Sequence[Result], ours: Sequence[Result], folder: Path, theirs: Sequence[tuple[float, float]] | None
) -> list[list[Cell]]:
    """A row per group: users, HR@10 of both, their difference, the paper's, and ours against it."""
    pair = same_seeds(base, ours)
    hits = [per_user(of, folder, "HR@10") for of in pair]
    rows: list[list[Cell]] = []
    for index, (label, chosen) in enumerate(length_groups(pair[0][0], folder).items()):
        users = int(chosen.sum())
        published = theirs[index] if theirs else None
        cells: list[Cell] = ["no users", "", _change(*published) if published else "none", ""]
        if users:
            before, after = (of[chosen] for of in hits)
            cells[:2] = [_change(100 * before.mean(), 100 * after.mean()), paired(after, before)]
            if before.any():
                cells[3] = in_points(after.mean() / before.mean(), published[1] / published[0] if published else None)
        rows.append([label, f"{users:,}", *cells])
    return rows


def _change(before: float, after: float) -> str:
    relative = f" ({after / before - 1:+.1%})" if before else ""
    return f"{before:.2f} → {after:.2f}{relative}"
