"""MARS with another number of heads and with another dropout."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from marsrec.lab.comparison import EXPLAINED, Cell, change, figures, spread, told
from marsrec.lab.page import Picture, Section, Table
from marsrec.lab.plot import COLORS, MARKERS, STYLES, plot
from marsrec.lab.results import Result
from reproduction.comparable import alike, as_published, datasets, find, published_name, trained
from reproduction.published import DROPOUT, HEADS, METRICS, against, not_run, shown
from reproduction.variants import MARS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SWEEPS: dict[str, tuple[str, str, tuple[float, ...]]] = {
    "Heads": ("number of decay heads K", "readout.heads", (1, 2, 4, 8, 16)),
    "Dropout": ("dropout of the encoder", "encoder.dropout", (0.1, 0.2, 0.3, 0.5, 0.7)),
}
"""What the paper varies: in words, the option, and its values."""


def section(found: Sequence[Result], folder: Path) -> Section:
    """The metrics against the number of heads and against dropout."""
    parts: list[str | Table | Picture] = [
        "The same model with another number of decay heads, and with another dropout in the encoder; shown from two "
        f"values on. {EXPLAINED} Bars in the figures are standard deviations over seeds, where "
        "there are several."
    ]
    published: dict[str, Mapping[str, Mapping[float, Sequence[float]]]] = {
        **{f"heads of {recipe}": sweeps for recipe, sweeps in HEADS.items()},
        "dropout": DROPOUT,
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
    return Section("sensitivity", "Sensitivity", [*parts, *not_run(lacking)])


def _sweep(
    swept: Mapping[float, Sequence[Result]],
    theirs: Mapping[float, Sequence[float]],
    default: Sequence[Result],
    folder: Path,
    label: str,
) -> Table:
    """All values of the paper's, run or not."""
    rows: list[list[Cell]] = []
    for value, run in swept.items():
        figured = [spread(figures(run, metric)) for metric in METRICS] if run else ["not run"] * len(METRICS)
        compared: Cell = ""
        if run and default:
            compared = "default" if run == default else change(run, default, folder, "HR@10")
        elif run:
            compared = "default: not run"
        ours = [mean(figures(run, metric)) for metric in METRICS] if run else []
        published = theirs.get(value)
        rows.append([f"{value:g}", *figured, compared, shown(published), against(ours, published)])
    training = trained(next(run for run in swept.values() if run))
    columns = [label, *METRICS, "HR@10 against the default", "paper", "against it"]
    if theirs:
        columns[-2] = f"paper: {' / '.join(METRICS[: len(next(iter(theirs.values())))])}"
        columns[-2] += ", backbone not named" if "dropout" in label else ""
    else:
        columns, rows = columns[:-2], [row[:-2] for row in rows]
    return Table(columns, told(rows), f"Training: {training}.")


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
