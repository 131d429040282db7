"""The picture of a search: validation over its trials, and over the values of each setting."""

from pathlib import Path

import polars as pl

from marsrec.atomic import atomic_file
from marsrec.lab.plot import COLORS, plot
from marsrec.lab.search_space import RANGES, TRAINING
from marsrec.lab.tuning import Tuned
from marsrec.training.settings import MONITOR

ROW = 4
"""Panels side by side."""


def draw_tuning(found: Tuned, path: Path) -> None:
    """Draw a search: a panel of its trials in their order, and one per setting that was searched.

    Parameters
    ----------
    found : Tuned
        The search.
    path : Path
        The file to write; its ending decides the format.
    """
    default = found.trials["valid"][0]
    trials = found.trials.slice(1).sort("trial")
    complete, pruned = (trials.filter(pl.col("state") == state) for state in ("complete", "pruned"))
    settings = [name for name in trials.columns[6:] if trials[name].n_unique() > 1]
    scales = {searched.name: searched.scale for searched in RANGES}
    rows = 1 + len(settings) // ROW
    figure, panels = plot(ROW, width=3.1 * ROW, height=0.4 + 2.6 * rows, rows=rows, share_y=True)
    from matplotlib.pyplot import close  # there, since `plot` was
    from matplotlib.ticker import LogLocator, NullFormatter

    for axis, name in zip(panels, ["trial", *settings], strict=False):
        axis.axhline(100 * default, color=COLORS[7], linestyle="--", linewidth=1)
        axis.scatter(pruned[name], 100 * pruned["valid"], s=22, facecolors="none", edgecolors=COLORS[7])
        axis.scatter(complete[name], 100 * complete["valid"], s=22, color=COLORS[1])
        axis.set_xlabel(name.removeprefix(TRAINING).replace("_", " "))
        if scales.get(name) == "log":
            axis.set_xscale("log")
            axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter(NullFormatter())
        if scales.get(name) == "choice":
            axis.set_xticks(sorted(trials[name].unique()))
    best = trials.select("trial", best=pl.when(state="complete").then(pl.col("valid")).cum_max().forward_fill())
    panels[0].step(best["trial"], 100 * best["best"], where="post", color=COLORS[2], linewidth=1.2)
    for axis in panels[len(settings) + 1 :]:
        axis.set_visible(False)
    for axis in panels[::ROW]:
        axis.set_ylabel(f"validation {MONITOR} × 100")
    labels = ["the default", "pruned", "complete", "best so far"]
    handles = [*panels[0].lines[:1], *panels[0].collections, panels[0].lines[-1]]
    figure.legend(handles, labels, loc="outside upper left", ncols=4, frameon=False, fontsize=8)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, format=path.suffix[1:], dpi=120)
    close(figure)
