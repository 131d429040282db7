"""What the recipes cost, beside the paper's figures, and what accuracy they have for it."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from marsrec.lab.comparison import figures, spread
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.plot import COLORS, MARKERS, name_points, plot
from marsrec.lab.results import Result
from reproduction.comparable import alike, as_published, find, trained
from reproduction.costs import FOLDER, ROWS, Cost, Costs
from reproduction.published import EFFICIENCY, MAIN, against, not_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = dict[str, tuple[float, float]]
"""Cost and HR@10 of models."""


def section(found: Sequence[Result], results: Path) -> Section:
    """Parameters, multiply-accumulates, time and memory of all recipes, and their accuracy against time."""
    parts: list[str | Table | Picture] = [
        "Random histories as long as a model looks back. Multiply-accumulates are what torch counts of one forward "
        "pass that gives the states of all events of one history, without the scores of the items. What our compiled "
        "kernels do is not among them, such as selective scans, the interval terms of TiSASRec and NARM's attention; "
        "nor are Fourier transforms. TiSASRec's attention counts "
        "the pairs up to each event, that of the others all pairs. Times are of what is needed: models that read out "
        "the latest state compute there alone what follows attention or scan in their last layer. All times are "
        "medians of turns taken side by side; a training step is forward and backward, and memory the most that "
        f"torch's allocator held for one on {ROWS} histories. A step of the models that are not causal trains one "
        "target per history, of the others one per event. The paper's parameters and multiply-accumulates stand "
        "beside ours; the latter of mamba4rec and mars-m are about what the feed-forward layers alone come to. Its "
        "times and memory are of a GPU, a V100, and do not compare."
    ]
    measured = [Costs.model_validate_json(path.read_bytes()) for path in sorted((results / FOLDER).glob("*.json"))]
    for costs in measured:
        parts += [
            f"## {costs.data}: {costs.items:,} items, {costs.length} events",
            _table(costs),
            Picture(
                f"efficiency-{costs.data}",
                f"Time per history against multiply-accumulates of a whole pass at the size of {costs.data}.",
                partial(_draw_costs, costs.rows),
            ),
            *_accuracy(alike(found, costs.data), costs),
        ]
    lacking = [data for data in EFFICIENCY if data not in [costs.data for costs in measured]]
    return Section("efficiency", "Efficiency", [*parts, *not_run({"all recipes": lacking})])


def _table(costs: Costs) -> Table:
    theirs = EFFICIENCY.get(costs.data, {})
    rows = []
    for cost in costs.rows:
        published = theirs.get(cost.model)
        rows.append(
            [
                cost.model,
                f"{cost.parameters / 1000:,.0f}",
                f"{cost.accumulates:.2f}",
                _median(cost.inference, cost.inference_quartiles),
                _median(cost.step, cost.step_quartiles),
                f"{cost.memory:,.1f}",
                "{:.0f} / {:.2f}".format(*published[:2]) if published else "none",
                against((cost.parameters / 1000, cost.accumulates), published and published[:2]),
                "{:.3f} / {:.2f}".format(*published[2:]) if published else "none",
            ]
        )
    columns = ["model", "thousand parameters", "million MACs", "ms per history", "training ms per target"]
    columns += ["training peak MB", "paper: parameters / MACs", "against it", "paper, GPU: s / GB"]
    noted = all(cost.inference_quartiles and cost.step_quartiles for cost in costs.rows)
    times = "medians (and quartiles) of the turns" if noted else "medians of the turns, whose spread was not noted"
    threads = costs.machine.get("torch threads", "?")
    caption = f"Measured with torch {costs.versions['torch']} on {threads} threads. Times are {times}."
    return Table(columns, rows, caption)


def _median(value: float, quartiles: tuple[float, float] | None) -> str:
    return f"{value:.3f}" + (f" ({quartiles[0]:.3f}–{quartiles[1]:.3f})" if quartiles else "")


def _accuracy(results: Sequence[Result], costs: Costs) -> list[str | Table | Picture]:
    """HR@10 against time: who is at least as good and at least as fast as whom, here and by the paper's figures."""
    heading = f"## {costs.data}: accuracy against cost"
    runs = {cost.model: find(results, cost.model) for cost in costs.rows}
    ours: Points = {
        cost.model: (cost.inference, mean(figures(runs[cost.model], "HR@10")))
        for cost in costs.rows
        if runs[cost.model]
    }
    if len(ours) < 2:
        return [heading, f"Only {', '.join(ours)} was run: nothing to compare." if ours else "Not run."]
    theirs: Points = {}
    if as_published(results):
        published = EFFICIENCY.get(costs.data, {})
        theirs = {model: (cost[2], MAIN[costs.data][model][0]) for model, cost in published.items()}
    rows = []
    for cost in costs.rows:
        model, run = cost.model, runs[cost.model]
        rows.append(
            [
                model,
                spread(figures(run, "HR@10")) if run else "not run",
                _median(cost.inference, cost.inference_quartiles),
                outdone_by(model, ours) if run else "",
                f"{theirs[model][1]:.2f}, {theirs[model][0]:.3f}" if model in theirs else "none",
                against([ours[model][1]], [theirs[model][1]]) if run and model in theirs else "",
                outdone_by(model, theirs) if model in theirs else "",
            ]
        )
    columns = ["model", "HR@10", "ms per history", "as good and as fast"]
    columns += ["paper: HR@10, s on a GPU", "HR@10 against it", "as good and as fast, paper"]
    if not theirs:
        columns, rows = columns[:4], [row[:4] for row in rows]
    caption = (
        f"HR@10 against time per history on {costs.data}; the line joins the models that no other one outdoes in both. "
        "MARS has squares and bold names."
    )
    return [
        heading,
        Table(
            columns,
            rows,
            f"Training: {trained(results)}. As good and as fast: models that are at least both, and better in one; "
            "none means that the model is on the frontier. It goes by means and medians, however close they are.",
        ),
        Picture(f"accuracy-against-cost-{costs.data}", caption, partial(_draw_accuracy, ours)),
    ]


def outdone_by(model: str, points: Mapping[str, tuple[float, float]]) -> str:
    """Names of the models that cost no more and hit no less often than a model does, and are not its equal.

    Examples
    --------
    >>> points = {"a": (1.0, 5.0), "b": (2.0, 5.0), "c": (3.0, 8.0)}
    >>> outdone_by("b", points), outdone_by("c", points)
    ('a', 'none')
    """
    cost, hits = points[model]
    others = [name for name, (c, h) in points.items() if c <= cost and h >= hits and (c, h) != (cost, hits)]
    return ", ".join(others) or "none"


def _draw_costs(rows: Sequence[Cost]) -> "Figure":
    points = {cost.model: (cost.accumulates, cost.inference) for cost in rows}
    figure, (axis,) = plot(width=6.4, height=4.2)
    axis.set_xlim(0, 1.12 * max(x for x, _ in points.values()))
    axis.set_ylim(0, 1.12 * max(y for _, y in points.values()))
    axis.set_xlabel("million multiply-accumulates, states of all events")
    axis.set_ylabel("milliseconds to the user vector")
    _scatter(axis, points)
    return figure


def _draw_accuracy(points: Points) -> "Figure":
    figure, (axis,) = plot(width=6.4, height=4.2)
    front = sorted(points[model] for model in points if outdone_by(model, points) == "none")
    axis.plot(*zip(*front, strict=True), color="#555555", linewidth=0.8, linestyle="--")
    hits = [hit for _, hit in points.values()]
    margin = 0.12 * (max(hits) - min(hits)) or 1.0
    axis.set_xlim(0, 1.12 * max(cost for cost, _ in points.values()))
    axis.set_ylim(min(hits) - margin, max(hits) + margin)
    axis.set_xlabel("milliseconds per history")
    axis.set_ylabel("HR@10 × 100")
    _scatter(axis, points)
    return figure


def _scatter(axis: Any, points: Points) -> None:
    """Named dots; those of MARS are squares with black rims."""
    ours = [model for model in points if model.startswith("mars")]
    for model, (x, y) in points.items():
        look: dict[str, Any] = {"s": 40, "color": COLORS[1], "edgecolor": "white"}  # rims part dots that overlap
        if model in ours:
            look = {"s": 56, "color": COLORS[2], "edgecolor": "black", "marker": MARKERS[1], "zorder": 3}
        axis.scatter(x, y, **look)
    name_points(axis, points, bold=ours)
