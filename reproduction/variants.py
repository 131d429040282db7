"""MARS with one thing changed: ablations, sensitivity to the number of heads and to dropout, and extensions."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from marsrec.lab import paper
from marsrec.lab.comparison import (
    EXPLAINED,
    alike,
    as_published,
    change,
    datasets,
    figures,
    find,
    published_name,
    spread,
    trained,
)
from marsrec.lab.page import COLORS, MARKERS, STYLES, Picture, Section, Table, plot
from marsrec.lab.paper import METRICS
from marsrec.lab.results import Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARS = ("mars-t", "mars-m")

Variant = tuple[str, str | None, dict[str, Any]]
"""What is changed: in words, another readout, and options."""

ABLATIONS: dict[str, Variant] = {
    "full": ("all parts", None, {}),
    "backbone": ("the last state instead of MARS", "last", {}),
    "b1": ("ages counted in events instead of real time", None, {"readout.real_time": False}),
    "b2": ("all users share the rates", None, {"readout.modulation": False}),
    "b3": ("no diversity loss", None, {"readout.diversity": 0.0}),
    "b4": ("no balance loss", None, {"readout.balance": 0.0}),
    "single": ("one head", None, {"readout.heads": 1}),
}
"""The variants of the paper's ablation."""

EXTENSIONS: dict[str, Variant] = {
    "request clock": ("ages measured from the moment of the request", None, {"readout.clock": "request"}),
    "values": ("mapped states are summed up instead of the states", None, {"readout.values": True}),
    "user dropout": (
        "a dropout of 0.2 on the user vector; our default for sparse data that the paper does not have",
        None,
        {"readout.dropout": 0.2},
    ),
    "linear time": ("exponentials of age instead of power laws", None, {"readout.time_scale": "linear"}),
}
"""Variants that are not in the paper."""


SWEEPS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "Heads": ("number of decay heads K", "readout.heads", (1, 2, 4, 8, 16)),
    "Dropout": ("dropout of the encoder", "encoder.dropout", (0.1, 0.2, 0.3, 0.5, 0.7)),
}
"""What the paper varies: in words, the option, and its values."""


def ablation(found: Sequence[Result], folder: Path) -> Section:
    """MARS with its parts taken away, one by one, on both backbones."""
    parts: list[str | Table | Picture] = [
        "What each part of MARS is worth. The paper's figures are those of the full tables in its appendix. The table "
        'in its text has another "full" for mars-t: an HR@10 of 8.91 on beauty, 5.20 on sports, 12.24 on games and '
        "6.40 on yelp; its main comparison has yet another. For mars-t the backbone is sasrec; for mars-m it is a "
        f"Mamba of two layers with the last state as the user vector. {EXPLAINED}",
        _in_words(ABLATIONS),
    ]
    return Section("ablation", "Ablation", parts + _tables(found, folder, ABLATIONS, paper.ABLATION))


def extensions(found: Sequence[Result], folder: Path) -> Section:
    """What is not in the paper, against its MARS: the request clock, mapped states, linear time; and our dropout."""
    parts: list[str | Table | Picture] = [
        "Variants that the paper does not have, each under its own name, against the recipe itself. On the paper's "
        "clock ages are measured from a user's latest event. On the request clock they are measured from the moment "
        "the recommendation is asked for, in training and test the time of the target: a shop knows it, but the other "
        f"models are not told. {EXPLAINED}",
        _in_words(EXTENSIONS),
    ]
    tables = _tables(found, folder, {"full": ABLATIONS["full"], **EXTENSIONS}, {})
    return Section("extensions", "Extensions", parts + (tables or ["Not run."]))


def sensitivity(found: Sequence[Result], folder: Path) -> Section:
    """The metrics against the number of heads and against dropout."""
    parts: list[str | Table | Picture] = [
        "The same model with another number of decay heads, and with another dropout in the encoder; shown from two "
        f"values on. {EXPLAINED} Bars in the figures are standard deviations over seeds, where "
        "there are several."
    ]
    published: dict[str, Mapping[str, Mapping[float, Sequence[float]]]] = {
        **{f"heads of {recipe}": sweeps for recipe, sweeps in paper.HEADS.items()},
        "dropout": paper.DROPOUT,
    }
    lacking = {sweep: list(data) for sweep, data in published.items()}
    for data in datasets(found):
        results, name = alike(found, data), published_name(data)
        for recipe in MARS:
            for title, (label, option, values) in SWEEPS.items():
                swept = {value: find(results, recipe, options={option: value}) for value in values}
                if sum(bool(run) for run in swept.values()) < 2:
                    continue
                sweep = f"heads of {recipe}" if title == "Heads" else "dropout"
                theirs = published[sweep].get(name, {}) if as_published(results) else {}
                if theirs:
                    lacking[sweep] = [other for other in lacking[sweep] if other != name]
                beside = " and the paper's" if theirs else ""
                caption = f"HR@10 of {recipe} on {data} against the {label}: ours{beside}."
                parts += [
                    f"## {title}: {recipe} on {data}",
                    _sweep(swept, theirs, find(results, recipe), folder, label),
                    Picture(f"{title.lower()}-{recipe}-{data}", caption, partial(_draw_sweep, swept, theirs, label)),
                ]
    return Section("sensitivity", "Sensitivity", [*parts, *paper.not_run(lacking)])


def _in_words(variants: Mapping[str, Variant]) -> str:
    return "\n".join(f"- {name}: {words}" for name, (words, _, _) in variants.items())


def _tables(
    found: Sequence[Result],
    folder: Path,
    variants: Mapping[str, Variant],
    published: Mapping[str, Mapping[str, Mapping[str, paper.Figures]]],
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
    return [*parts, *paper.not_run(lacking)]


def _table(
    runs: Mapping[str, Sequence[Result]], theirs: Mapping[str, paper.Figures], folder: Path, training: str
) -> Table:
    rows = []
    full = runs["full"]
    for name, run in runs.items():
        if name != "full" and run and run == full:
            continue  # what is changed is so on these data in any case
        figured, compared = ["not run"] * len(METRICS), ["", ""]
        if run:
            figured = [spread(figures(run, metric)) for metric in METRICS]
        if run and name != "full":
            compared = [change(run, full, folder, metric) if full else "full: not run" for metric in METRICS[:2]]
        published = theirs.get(name)
        ratio = f"{published[0] / theirs['full'][0] - 1:+.1%}" if published and name != "full" else ""
        ours = [mean(figures(run, metric)) for metric in METRICS] if run else []
        rows.append([name, *figured, *compared, ratio, paper.shown(published), paper.against(ours, published)])
    columns = ["variant", *METRICS, *(f"{metric} against full" for metric in METRICS[:2])]
    columns += ["HR@10 against full, paper", "paper", "against it"]
    if not theirs:
        columns, rows = columns[:-3], [row[:-3] for row in rows]
    return Table(columns, rows, f"Training: {training}.")


def _sweep(
    swept: Mapping[float, Sequence[Result]],
    theirs: Mapping[float, Sequence[float]],
    default: Sequence[Result],
    folder: Path,
    label: str,
) -> Table:
    """All values of the paper's, run or not."""
    rows = []
    for value, run in swept.items():
        figured = [spread(figures(run, metric)) for metric in METRICS] if run else ["not run"] * len(METRICS)
        compared = ""
        if run and default:
            compared = "default" if run == default else change(run, default, folder, "HR@10")
        elif run:
            compared = "default: not run"
        ours = [mean(figures(run, metric)) for metric in METRICS] if run else []
        published = theirs.get(value)
        rows.append([f"{value:g}", *figured, compared, paper.shown(published), paper.against(ours, published)])
    training = trained(next(run for run in swept.values() if run))
    columns = [label, *METRICS, "HR@10 against the default", "paper", "against it"]
    if theirs:
        columns[-2] = f"paper: {' / '.join(METRICS[: len(next(iter(theirs.values())))])}"
        columns[-2] += ", backbone not named" if "dropout" in label else ""
    else:
        columns, rows = columns[:-2], [row[:-2] for row in rows]
    return Table(columns, rows, f"Training: {training}.")


def _draw_sweep(
    swept: Mapping[float, Sequence[Result]], theirs: Mapping[float, Sequence[float]], label: str
) -> "Figure":
    figure, (axis,) = plot()
    ours = {value: figures(run, "HR@10") for value, run in swept.items() if run}
    published = {value: [figure[0]] for value, figure in theirs.items()}
    for index, (name, curve) in enumerate((("here", ours), ("paper", published))):
        if curve:
            look: dict[str, Any] = {"color": COLORS[index], "linestyle": STYLES[index], "marker": MARKERS[index]}
            bars = [stdev(values) if len(values) > 1 else 0.0 for values in curve.values()]
            look["yerr"] = bars if any(bars) else None
            axis.errorbar(list(curve), [mean(values) for values in curve.values()], label=name, **look)
    if "K" in label:
        ticks = sorted({*ours, *published})
        axis.set_xscale("log", base=2)
        axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_xlabel(label)
    axis.set_ylabel("HR@10 × 100")
    axis.legend(frameon=False)
    return figure
