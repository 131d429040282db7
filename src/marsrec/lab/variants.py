"""MARS with one thing changed: ablations, sensitivity to the number of heads and to dropout, and extensions."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean
from typing import TYPE_CHECKING, Any

from marsrec.lab import paper
from marsrec.lab.comparison import alike, datasets, figures, find, published_name, spread, trained
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


def ablation(found: Sequence[Result]) -> Section:
    """MARS with its parts taken away, one by one, on both backbones."""
    parts: list[str | Table | Picture] = [
        "What each part of MARS is worth. The paper's figures are those of the full tables in its appendix, whose "
        '"full" differs a little from its main table. For mars-t the backbone is sasrec; for mars-m it is a Mamba of '
        "two layers with the last state as the user vector."
    ]
    return Section("ablation", "Ablation", parts + _tables(found, ABLATIONS, paper.ABLATION))


def extensions(found: Sequence[Result]) -> Section:
    """What is not in the paper, against its MARS: the request clock, mapped states, linear time; and our dropout."""
    parts: list[str | Table | Picture] = [
        "Variants of the recipe, each under its own name; the last column compares HR@10 with the recipe's. On the "
        "paper's clock ages are measured from a user's latest event. On the request clock they are "
        "measured from the moment the recommendation is asked for, in training and test the time of the target: a shop "
        "knows it, but the other models are not told."
    ]
    return Section("extensions", "Extensions", parts + _tables(found, {"full": ABLATIONS["full"], **EXTENSIONS}, {}))


def sensitivity(found: Sequence[Result]) -> Section:
    """HR@10 against the number of heads and against dropout."""
    parts: list[str | Table | Picture] = [
        "The same model with another number of decay heads, and with another dropout in the encoder."
    ]
    for data in datasets(found):
        results = alike(found, data)
        for recipe in MARS:
            heads = _sweep(results, recipe, "readout.heads", (1, 2, 4, 8, 16))
            dropout = _sweep(results, recipe, "encoder.dropout", (0.1, 0.2, 0.3, 0.5, 0.7))
            published: list[Mapping[Any, float]] = [
                paper.HEADS.get(recipe, {}).get(published_name(data), {}),
                paper.DROPOUT.get(published_name(data), {}),
            ]
            for title, label, swept, theirs in (
                ("Heads", "number of decay heads K", heads, published[0]),
                ("Dropout", "dropout of the encoder", dropout, published[1]),
            ):
                if len(swept) < 2:
                    continue
                rows = [
                    [str(value), *(spread(figures(of, metric)) for metric in METRICS), _number(theirs.get(value))]
                    for value, of in swept.items()
                ]
                unnamed = ", backbone not named" if title == "Dropout" else ""
                name = f"{title.lower()}-{recipe}-{data}"
                caption = f"HR@10 of {recipe} on {data} against the {label}, ours and the paper's."
                parts += [
                    f"## {title}: {recipe} on {data}",
                    Table([label, *METRICS, "HR@10, paper" + unnamed], rows, f"Training: {trained(results)}."),
                    Picture(name, caption, partial(_draw_sweep, swept, theirs, label)),
                ]
    if len(parts) == 1:
        parts.append("Not run.")
    return Section("sensitivity", "Sensitivity", parts)


def _tables(
    found: Sequence[Result],
    variants: Mapping[str, Variant],
    published: Mapping[str, Mapping[str, Mapping[str, paper.Figures]]],
) -> list[str | Table | Picture]:
    """A table for all data and recipes that variants were run on; `published` has the paper's, by recipe and data."""
    parts: list[str | Table | Picture] = []
    for data in datasets(found):
        results = alike(found, data)
        for recipe in MARS:
            if _changed(results, recipe, variants):
                theirs = published.get(recipe, {}).get(published_name(data), {})
                parts += [f"## {recipe} on {data}", _table(results, recipe, variants, theirs)]
    return parts or ["Not run."]


def _changed(results: Sequence[Result], recipe: str, variants: Mapping[str, Any]) -> bool:
    """Whether there is a result of one of the variants that is not a model of its own."""
    own = [find(results, recipe), find(results, recipe, readout="last") if recipe == "mars-t" else []]
    return any(
        find(results, recipe, readout=readout, options=options) not in ([], *own)
        for _, readout, options in variants.values()
    )


def _table(
    results: Sequence[Result],
    recipe: str,
    variants: Mapping[str, Variant],
    theirs: Mapping[str, paper.Figures],
) -> Table:
    rows = []
    full = find(results, recipe)
    for name, (words, readout, options) in variants.items():
        of_variant = find(results, recipe, readout=readout, options=options)
        if name != "full" and of_variant and of_variant == full:
            continue  # what is changed is so on these data in any case
        beside = " / ".join(f"{figure:.2f}" for figure in theirs[name]) if name in theirs else "none"
        if not of_variant:
            rows.append([f"{name}: {words}", *["not run"] * 3, "", beside, ""])
            continue
        against = ""
        if full and name != "full":
            against = f"{mean(figures(of_variant, 'HR@10')) / mean(figures(full, 'HR@10')) - 1:+.1%}"
        rows.append(
            [
                f"{name}: {words}",
                *(spread(figures(of_variant, metric)) for metric in METRICS),
                against,
                beside,
                f"{theirs[name][0] / theirs['full'][0] - 1:+.1%}" if name in theirs and name != "full" else "",
            ]
        )
    columns = ["variant", *METRICS, "HR@10 against full", "paper", "HR@10 against full, paper"]
    if not theirs:
        columns, rows = columns[:-2], [row[:-2] for row in rows]
    return Table(columns, rows, f"Training: {trained(results)}.")


def _sweep(results: Sequence[Result], recipe: str, option: str, values: Sequence[float]) -> dict[float, list[Result]]:
    swept = {value: find(results, recipe, options={option: value}) for value in values}
    return {value: of_value for value, of_value in swept.items() if of_value}


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.2f}"


def _draw_sweep(swept: Mapping[float, Sequence[Result]], theirs: Mapping[Any, float], label: str) -> "Figure":
    figure, (axis,) = plot()
    ours = {value: mean(figures(of, "HR@10")) for value, of in swept.items()}
    for index, (name, curve) in enumerate((("here", ours), ("paper", dict(theirs)))):
        if curve:
            look: dict[str, Any] = {"color": COLORS[index], "linestyle": STYLES[index], "marker": MARKERS[index]}
            axis.plot(list(curve), list(curve.values()), label=name, **look)
    if "K" in label:
        axis.set_xscale("log", base=2)
        axis.set_xticks(list(ours), [str(value) for value in ours])
    axis.set_xlabel(label)
    axis.set_ylabel("HR@10 × 100")
    axis.legend(frameon=False)
    return figure
