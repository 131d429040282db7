"""Where MARS helps: by length of history, by how spread attention is, and by the density of the data."""

import math
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np

from marsrec.evaluation.subgroups import DENSE_BUCKETS, SPARSE_BUCKETS, by_history_length
from marsrec.lab import paper
from marsrec.lab.comparison import (
    alike,
    datasets,
    density,
    figures,
    find,
    origin,
    per_user,
    published_name,
    ranks,
    trained,
    whole,
)
from marsrec.lab.page import COLORS, MARKERS, STYLES, Picture, Section, Table, plot
from marsrec.lab.results import Result, inspection_of
from marsrec.lab.significance import paired
from marsrec.models import DENSE_FROM, backbone

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
    for data in whole(found):
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
    for data in whole(found):
        results = alike(found, data)
        base, ours = find(results, "sasrec"), find(results, "mars-t")
        inspected = inspection_of(base[0], folder) if base else None
        if inspected is None:
            continue
        layers = [f"{layer.mean:.3f} ± {layer.std:.3f}" for layer in inspected.attention]
        everywhere = [f"{layer.mean_all:.3f} ± {layer.std_all:.3f}" for layer in inspected.attention]
        theirs = " / ".join(f"{value:.3f}" for value in paper.ENTROPY.get(published_name(data), ())) or "none"
        gain = ""
        if ours:
            relative = mean(figures(ours, "HR@10")) / mean(figures(base, "HR@10")) - 1
            points[data] = (mean(layer.mean for layer in inspected.attention), relative)
            gain = f"{relative:+.1%}"
        rows.append([data, " / ".join(layers), " / ".join(everywhere), theirs, gain])
    parts: list[str | Table | Picture] = [
        "Entropy of the attention weights, divided by the logarithm of the number of events that a position may look "
        "at: 1 is uniform, 0 looks at one event. Mean ± standard deviation over the positions of the test histories, "
        "layer by layer (of the first seed): of those that see at least two events, and of all, where one that sees a "
        "single event counts as 0. The paper does not say which it takes; its standard deviations, 0.27 to 0.42, are "
        "those of the latter. It explains by the entropy where MARS helps: where attention is spread, there is more "
        "to gain."
    ]
    if rows:
        parts.append(
            Table(["data", "two events or more", "all positions", "paper", "HR@10, mars-t against sasrec"], rows)
        )
    else:
        parts.append("Not run.")
    if len(points) > 1:
        caption = (
            "Gain in HR@10 of mars-t over sasrec against the mean attention entropy of sasrec, a mark per data set."
        )
        parts.append(Picture("entropy", caption, partial(_draw_entropy, points)))
    return Section("entropy", "Attention entropy", parts)


def backbone_rule(found: Sequence[Result], folder: Path) -> Section:
    """MARS-T against MARS-M as the average length varies."""
    rows: list[list[str]] = []
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    decided, right = 0, 0
    for data in sorted(datasets(found), key=lambda data: _average(found, data)):
        results = alike(found, data)
        pair = [find(results, name) for name in ("mars-t", "mars-m")]
        if not all(pair):
            continue
        average = density(results[0])
        on_t, on_m = (mean(figures(of, "NDCG@10")) for of in pair)
        difference = paired(*(per_user(of, folder, "NDCG@10") for of in reversed(pair)))
        lines[origin(data)].append((average, on_m / on_t - 1))
        taken = backbone(average)
        better = (
            ("mars-m" if difference.mean > 0 else "mars-t") if difference.low * difference.high > 0 else "undecided"
        )
        decided, right = decided + (better != "undecided"), right + (better == taken)
        hits = [f"{mean(figures(of, 'HR@10')):.2f}" for of in pair]
        gains = [f"{on_t:.2f}", f"{on_m:.2f}", f"{on_m / on_t - 1:+.1%}", str(difference)]
        rows.append([data, f"{average:.1f}", *hits, *gains, taken, better])
    parts: list[str | Table | Picture] = [
        f"The rule takes mars-t below an average of {DENSE_FROM:.0f} training events per user, and mars-m from there "
        "on. Data of several densities are made by keeping only the latest events of each user (the test targets and "
        "the settings stay the same) and by the hawkes generator, whose data get the settings of their density: from "
        "50 events on, longer windows, less dropout and more heads, for both models alike."
    ]
    if rows:
        columns = ["data", "L̄", "mars-t HR@10", "mars-m HR@10", "mars-t NDCG@10", "mars-m NDCG@10"]
        columns += ["mars-m against mars-t", "difference over users", "rule takes", "better here"]
        crossings = [
            f"{name} at about {length:.0f}" for name, points in lines.items() for length in _crossings(sorted(points))
        ]
        varied = any(len(points) > 1 for points in lines.values())
        crossed = (
            f"The two cross: {'; '.join(crossings)} events."
            if crossings
            else "They cross nowhere here."
            if varied
            else "Data of several densities: not run."
        )
        parts += [
            f"It takes the better one by NDCG@10 in {right} of the {decided} cases that the users decide (a 95 % "
            f"interval without 0), of {len(rows)} in all; one seed each unless the main comparison has more. "
            + crossed,
            Table(columns, rows),
        ]
        if varied:
            caption = (
                "NDCG@10 of mars-m relative to mars-t against the average number of training events per user; the "
                "vertical line is where the rule changes over."
            )
            parts.append(Picture("backbone-rule", caption, partial(_draw_rule, lines)))
    else:
        parts.append("Not run.")
    return Section("rule", "The backbone rule", parts)


def _average(found: Sequence[Result], data: str) -> float:
    return next(density(result) for result in found if result.data == data)


def _crossings(points: Sequence[tuple[float, float]]) -> list[float]:
    """Average lengths at which the sign changes, between neighbours on a logarithmic axis."""
    crossed = []
    for (left, below), (right, above) in pairwise(points):
        if below * above < 0:
            share = below / (below - above)
            crossed.append(math.exp((1 - share) * math.log(left) + share * math.log(right)))
    return crossed


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
