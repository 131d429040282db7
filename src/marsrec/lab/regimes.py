"""Where MARS helps: by length of history, by how spread attention is, and by the density of the data."""

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.evaluation.subgroups import DENSE_BUCKETS, SPARSE_BUCKETS, by_history_length
from marsrec.lab import paper
from marsrec.lab.comparison import alike, datasets, density, figures, find, published_name, ranks, trained
from marsrec.lab.page import COLORS, MARKERS, STYLES, Picture, Section, Table, plot
from marsrec.lab.results import Result, inspection_of
from marsrec.models import DENSE_FROM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASELINES = {"mars-t": "sasrec", "mars-m": "mamba4rec"}
"""What the paper compares the two with by length of history."""


def subgroups(found: Sequence[Result], folder: Path) -> Section:
    """HR@10 for users with short and long histories."""
    parts: list[str | Table | Picture] = [
        "HR@10 × 100 by number of events before the test target: the baseline, MARS, and the relative gain. Small "
        "groups move by points from seed to seed; the number of users is given for that reason."
    ]
    for data in datasets(found):
        results = alike(found, data)
        for ours, baseline in BASELINES.items():
            pair = [find(results, name) for name in (baseline, ours)]
            if not all(pair):
                continue
            groups = [_by_length(of, folder) for of in pair]
            theirs = paper.SUBGROUPS.get((published_name(data), ours))
            rows = []
            for index, (bucket, users) in enumerate(zip(*(groups[0][key] for key in ("bucket", "users")), strict=True)):
                before, after = (group["HR@10"][index] for group in groups)
                rows.append(
                    [bucket, f"{users:,}", _change(before, after), _change(*theirs[index]) if theirs else "none"]
                )
            columns = ["events", "users", f"{baseline} → {ours}", "paper"]
            parts += [f"## {data}: {ours}", Table(columns, rows, f"Training: {trained(results)}.")]
    if len(parts) == 1:
        parts.append("Not run.")
    return Section("subgroups", "By length of history", parts)


def entropy(found: Sequence[Result], folder: Path) -> Section:
    """How widely the attention of a trained SASRec is spread, beside what MARS gains on the same data."""
    rows = []
    points: dict[str, tuple[float, float]] = {}
    for data in datasets(found):
        results = alike(found, data)
        base, ours = find(results, "sasrec"), find(results, "mars-t")
        inspected = inspection_of(base[0], folder) if base else None
        if inspected is None:
            continue
        layers = [f"{layer.mean:.3f} ± {layer.std:.3f}" for layer in inspected.attention]
        theirs = " / ".join(f"{value:.3f}" for value in paper.ENTROPY.get(published_name(data), ())) or "none"
        gain = ""
        if ours:
            relative = mean(figures(ours, "HR@10")) / mean(figures(base, "HR@10")) - 1
            points[data] = (mean(layer.mean for layer in inspected.attention), relative)
            gain = f"{relative:+.1%}"
        rows.append([data, " / ".join(layers), theirs, gain])
    parts: list[str | Table | Picture] = [
        "Entropy of the attention weights, divided by the logarithm of the number of events that a position may look "
        "at: 1 is uniform, 0 looks at one event. Mean ± standard deviation over the positions of the test histories "
        "that see at least two events, layer by layer. The paper explains where MARS helps by it: where attention is "
        "spread, there is more to gain."
    ]
    if rows:
        parts.append(Table(["data", "sasrec, by layer", "paper", "HR@10, mars-t against sasrec"], rows))
    else:
        parts.append("Not run.")
    if len(points) > 1:
        caption = (
            "Gain in HR@10 of mars-t over sasrec against the mean attention entropy of sasrec, a mark per data set."
        )
        parts.append(Picture("entropy", caption, partial(_draw_entropy, points)))
    return Section("entropy", "Attention entropy", parts)


def backbone_rule(found: Sequence[Result]) -> Section:
    """MARS-T against MARS-M as the average length varies."""
    rows: list[list[str]] = []
    families: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for data in datasets(found):
        results = alike(found, data)
        pair = [find(results, name) for name in ("mars-t", "mars-m")]
        if not all(pair):
            continue
        average = density(results[0])
        sparse, dense = (mean(figures(of, "NDCG@10")) for of in pair)
        families[family(data)].append((average, dense / sparse - 1))
        taken = "mars-m" if average >= DENSE_FROM else "mars-t"
        better = "mars-m" if dense > sparse else "mars-t"
        hits = [f"{mean(figures(of, 'HR@10')):.2f}" for of in pair]
        rows.append(
            [
                data,
                f"{average:.1f}",
                *hits,
                f"{sparse:.2f}",
                f"{dense:.2f}",
                f"{dense / sparse - 1:+.1%}",
                taken,
                better,
            ]
        )
    rows.sort(key=lambda row: float(row[1]))
    right = sum(row[-1] == row[-2] for row in rows)
    parts: list[str | Table | Picture] = [
        f"The rule takes mars-t below an average of {DENSE_FROM:.0f} training events per user, and mars-m from there "
        "on. Data of several densities are made by keeping only the latest events of each user (the test targets stay "
        "the same) and by the hawkes generator."
    ]
    if rows:
        columns = ["data", "L̄", "mars-t HR@10", "mars-m HR@10", "mars-t NDCG@10", "mars-m NDCG@10"]
        columns += ["mars-m against mars-t", "rule takes", "better here"]
        parts += [
            f"It takes the better one by NDCG@10 in {right} of {len(rows)} cases.",
            Table(columns, rows),
            Picture(
                "backbone-rule",
                "NDCG@10 of mars-m relative to mars-t against the average number of training events per user; the "
                "vertical line is where the rule changes over.",
                partial(_draw_rule, families),
            ),
        ]
    else:
        parts.append("Not run.")
    return Section("rule", "The backbone rule", parts)


def family(data: str) -> str:
    """The data that truncated or generated data come from.

    Examples
    --------
    >>> family("ml-1m-latest20"), family("hawkes-mean_events80"), family("beauty")
    ('ml-1m', 'hawkes', 'beauty')
    """
    return "hawkes" if data.startswith("hawkes") else data.split("-latest")[0]


def _by_length(of: Sequence[Result], folder: Path) -> dict[str, list[Any]]:
    dense = density(of[0]) >= DENSE_FROM
    frames = [ranks(result, folder) for result in of]
    groups = [
        by_history_length(
            frame["rank"].to_numpy().astype(float),
            frame["length"].to_numpy().astype(np.int64),
            DENSE_BUCKETS if dense else SPARSE_BUCKETS,
            ks=(10,),
        )
        for frame in frames
    ]
    hits = [
        None if values[0] is None else 100 * mean(values)
        for values in zip(*(group["HR@10"].to_list() for group in groups), strict=True)
    ]
    return {"bucket": groups[0]["bucket"].to_list(), "users": groups[0]["users"].to_list(), "HR@10": hits}


def _change(before: float | None, after: float | None) -> str:
    if before is None or after is None:
        return "no users"
    relative = f" ({after / before - 1:+.1%})" if before else ""
    return f"{before:.2f} → {after:.2f}{relative}"


def _draw_entropy(points: dict[str, tuple[float, float]]) -> "Figure":
    figure, (axis,) = plot(width=5.6)
    for index, (data, (spread_out, gain)) in enumerate(points.items()):
        axis.scatter(spread_out, 100 * gain, color=COLORS[1], marker=MARKERS[index % len(MARKERS)])
        axis.annotate(data, (spread_out, 100 * gain), xytext=(6, 4), textcoords="offset points", size=9)
    axis.axhline(0, color="#555555", linewidth=0.8)
    axis.set_xlabel("normalised attention entropy of sasrec")
    axis.set_ylabel("HR@10 of mars-t against sasrec, %")
    return figure


def _draw_rule(families: dict[str, list[tuple[float, float]]]) -> "Figure":
    figure, (axis,) = plot(width=6.4)
    for index, (name, points) in enumerate(families.items()):
        lengths, differences = zip(*sorted(points), strict=True)
        look: dict[str, Any] = {
            "color": COLORS[index % len(COLORS)],
            "linestyle": STYLES[index % len(STYLES)],
            "marker": MARKERS[index % len(MARKERS)],
        }
        axis.plot(lengths, [100 * value for value in differences], label=name, **look)
    axis.axhline(0, color="#555555", linewidth=0.8)
    axis.axvline(DENSE_FROM, color="#555555", linewidth=0.8, linestyle=":")
    axis.set_xscale("log")
    ticks = [5, 10, 20, 50, 100, 200]
    axis.set_xticks(ticks, [str(tick) for tick in ticks])
    axis.minorticks_off()
    axis.set_xlabel("average number of training events per user")
    axis.set_ylabel("NDCG@10 of mars-m against mars-t, %")
    axis.legend(frameon=False)
    return figure
