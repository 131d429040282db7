"""Where MARS helps: by length of history, and by how spread attention is."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.evaluation.significance import paired
from marsrec.evaluation.subgroups import DENSE_BUCKETS, SPARSE_BUCKETS, history_buckets
from marsrec.lab import paper
from marsrec.lab.comparison import (
    EXPLAINED,
    alike,
    as_published,
    density,
    difference,
    find,
    gain,
    per_user,
    published_name,
    ranks,
    same_seeds,
    trained,
    whole,
)
from marsrec.lab.inspection import Inspection
from marsrec.lab.page import COLORS, MARKERS, Picture, Section, Table, plot
from marsrec.lab.results import Result, inspection_of
from marsrec.models import DENSE_FROM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINES = {"mars-t": "sasrec", "mars-m": "mamba4rec"}
"""What the paper compares the two with by length of history."""


def subgroups(found: Sequence[Result], folder: Path) -> Section:
    """HR@10 for users with short and long histories."""
    parts: list[str | Table | Picture] = [
        "HR@10 × 100 by number of events before the test target: the baseline, MARS, and the relative gain; the "
        "last column is our gain less the paper's, in percentage points. Small groups move by points from seed to "
        f"seed; the number of users is given for that reason. {EXPLAINED}"
    ]
    lacking = {ours: [data for data, model in paper.SUBGROUPS if model == ours] for ours in BASELINES}
    for data in whole(found):
        results, name = alike(found, data), published_name(data)
        for ours, baseline in BASELINES.items():
            pair = find(results, baseline), find(results, ours)
            if not all(pair):
                continue
            theirs = paper.SUBGROUPS.get((name, ours)) if as_published(results) else None
            if theirs:
                lacking[ours] = [other for other in lacking[ours] if other != name]
            columns = ["events", "users", f"{baseline} → {ours}", "difference over users", "paper", "gain against it"]
            rows = _groups(*pair, folder, theirs)
            if not theirs:
                columns, rows = columns[:-2], [row[:-2] for row in rows]
            parts += [f"## {data}: {ours}", Table(columns, rows, f"Training: {trained(results)}.")]
    of_pairs = {f"{baseline} and {ours}": lacking[ours] for ours, baseline in BASELINES.items()}
    return Section("subgroups", "By length of history", [*parts, *paper.not_run(of_pairs)])


def entropy(found: Sequence[Result], folder: Path) -> Section:
    """How widely the attention of a trained SASRec is spread, beside what MARS gains on the same data."""
    layers: list[list[str]] = []
    gains: list[list[str]] = []
    points: dict[str, tuple[float, float]] = {}
    run = whole(found)
    for data in [*run, *(name for name in paper.ENTROPY if name not in map(published_name, run))]:
        results, name = alike(found, data), published_name(data)
        base, ours = find(results, "sasrec"), find(results, "mars-t")
        inspected = inspection_of(base[0], folder) if base else None
        known = not results or as_published(results)  # what was not run is shown by the paper's figures alone
        lacking = "not inspected" if base else "not run"
        layers += _layers(data, inspected or lacking, paper.ENTROPY.get(name) if known else None)
        main = paper.MAIN.get(name) if known else None
        published = main["mars-t"][0] / main["sasrec"][0] - 1 if main else None
        cells = ["not run", "", f"{published:+.1%}" if published is not None else "none", ""]
        if base and ours:
            relative = gain(ours, base)
            cells[:2] = [f"{relative:+.1%}", str(difference(ours, base, folder, "HR@10"))]
            cells[3] = paper.points(relative, published)
            if inspected:
                points[data] = (mean(layer.mean for layer in inspected.attention), relative)
        beside = f"{paper.ENTROPY_GAINS[name]:+.1%}" if known and name in paper.ENTROPY_GAINS else "none"
        gains.append([data, *cells, beside])
    parts: list[str | Table | Picture] = [
        "Entropy of the attention weights, divided by the logarithm of the number of events that a position may look "
        "at: 1 is uniform, 0 looks at one event. Mean ± standard deviation over the positions of the test histories, "
        "layer by layer (of the first seed): of those that see at least two events, and of all, where one that sees a "
        'single event counts as 0. The paper takes "all valid query positions" and does not say what it makes of those '
        "that see a single event; it gives standard deviations of 0.27 to 0.42, without telling of which data and "
        "layer. It explains by the entropy where MARS helps: where attention is spread, there is more to gain.",
        Table(
            ["data", "layer", "two events or more", "against the paper", "all positions", "against the paper", "paper"],
            layers,
        ),
        "## What MARS gains there",
        Table(
            ["data", "mars-t against sasrec", "difference over users", "paper", "against it", "paper, beside entropy"],
            gains,
            f"HR@10. {EXPLAINED} The paper's gain is that of its main table. What it prints beside the "
            "entropies is over its best Transformer without time, which is fearec on sports and sasrec on the others, "
            "and on ml-1m that of the users with the longest histories alone.",
        ),
    ]
    if len(points) > 1:
        caption = (
            "Gain in HR@10 of mars-t over sasrec against the mean attention entropy of sasrec, a mark per data set."
        )
        parts.append(Picture("entropy", caption, partial(_draw_entropy, points)))
    return Section("entropy", "Attention entropy", parts)


def _groups(
    base: Sequence[Result], ours: Sequence[Result], folder: Path, theirs: Sequence[tuple[float, float]] | None
) -> list[list[str]]:
    """A row per group: users, HR@10 of both, their difference, the paper's, and ours against it."""
    pair = same_seeds(base, ours)
    lengths = ranks(pair[0][0], folder)["length"].to_numpy().astype(np.int64)
    labels, group = history_buckets(lengths, DENSE_BUCKETS if density(base[0]) >= DENSE_FROM else SPARSE_BUCKETS)
    hits = [per_user(of, folder, "HR@10") for of in pair]
    rows = []
    for index, label in enumerate(labels):
        chosen = (group == index).numpy()
        users = int(chosen.sum())
        published = theirs[index] if theirs else None
        cells = ["no users", "", _change(*published) if published else "none", ""]
        if users:
            before, after = (of[chosen] for of in hits)
            cells[:2] = [_change(100 * before.mean(), 100 * after.mean()), str(paired(after, before))]
            if before.any():
                cells[3] = paper.points(
                    after.mean() / before.mean(), published[1] / published[0] if published else None
                )
        rows.append([label, f"{users:,}", *cells])
    return rows


def _change(before: float, after: float) -> str:
    relative = f" ({after / before - 1:+.1%})" if before else ""
    return f"{before:.2f} → {after:.2f}{relative}"


def _layers(data: str, inspected: Inspection | str, theirs: Sequence[float] | None) -> list[list[str]]:
    """A row per layer, ours and the paper's; a text instead of ours says why they are lacking."""
    if isinstance(inspected, str):
        published = {str(layer): f"{value:.3f}" for layer, value in enumerate(theirs or ())} or {"": "none"}
        return [[data, layer, inspected, "", inspected, "", beside] for layer, beside in published.items()]
    rows = []
    for index, layer in enumerate(inspected.attention):
        cells = []
        for value, deviation in ((layer.mean, layer.std), (layer.mean_all, layer.std_all)):
            cells += [f"{value:.3f} ± {deviation:.3f}", f"{value - theirs[index]:+.3f}" if theirs else ""]
        rows.append([data, str(index), *cells, f"{theirs[index]:.3f}" if theirs else "none"])
    return rows


def _draw_entropy(points: dict[str, tuple[float, float]]) -> "Figure":
    figure, (axis,) = plot(width=5.6)
    for index, (data, (spread_out, gained)) in enumerate(points.items()):
        look: dict[str, Any] = {"color": COLORS[1], "marker": MARKERS[index % len(MARKERS)]}
        axis.scatter(spread_out, 100 * gained, **look)
        axis.annotate(data, (spread_out, 100 * gained), xytext=(6, 4), textcoords="offset points", size=9)
    axis.axhline(0, color="#555555", linewidth=0.8)
    axis.set_xlabel("normalised attention entropy of sasrec")
    axis.set_ylabel("HR@10 of mars-t against sasrec, %")
    return figure
