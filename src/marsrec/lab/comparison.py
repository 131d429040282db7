"""The main comparison: every recipe beside the paper's figures, and MARS against each of the others."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl

from marsrec.data.catalog import CATALOG, Statistics
from marsrec.errors import DataError
from marsrec.lab import paper
from marsrec.lab.page import Section, Table, best, second
from marsrec.lab.paper import METRICS
from marsrec.lab.results import RANKS, Result
from marsrec.lab.significance import Difference, Floats, gains, paired
from marsrec.models import RECIPES, backbone, model_settings, paper_options, targets_per_batch
from marsrec.training.module import NOT_DECISIVE, TrainingSettings

USUAL = "the paper's: at most 200 epochs, patience 20"
AS_PAPER: tuple[tuple[str, Any], ...] = ()
"""What `_training` says of a training by the paper's settings."""
PLANNED = ("beauty", "sports", "games-2018", "ml-1m", "yelp-2019")
"""The data of the comparison, run or not: the paper's, and what stands in for two of them."""


@dataclass(frozen=True)
class Contest:
    """MARS against another model on the same users."""

    other: str
    differences: dict[str, Difference]
    """By metric, MARS less the other."""
    seeds: tuple[int, int]
    """How many of either are compared."""


def alike(found: Sequence[Result], data: str) -> list[Result]:
    """Results on one data set that were trained alike: as the paper trains if any were, else as most were."""
    here = [result for result in found if result.data == data]
    ways = Counter(_way(result) for result in here)
    if not ways:
        return []
    as_paper = Counter({way: count for way, count in ways.items() if way[0] == AS_PAPER})
    chosen = (as_paper or ways).most_common(1)[0][0]
    return [result for result in here if _way(result) == chosen]


def trained(results: Sequence[Result]) -> str:
    """How results that were trained alike were trained, in words."""
    if not results or _training(results[0]) == AS_PAPER:
        return USUAL
    return ", ".join(f"{name} {value}" for name, value in _training(results[0]))


def find(
    results: Sequence[Result], recipe: str, *, readout: str | None = None, options: Mapping[str, Any] | None = None
) -> list[Result]:
    """Those of a recipe at the paper's settings, or changed as given; one per seed, the one with most prefixes."""
    matching: dict[int, Result] = {}
    for result in sorted(results, key=lambda result: result.training.prefix_share):
        data = CATALOG.get(origin(result.data))
        known = data.paper if data else None
        chosen = {**paper_options(known, recipe, readout=readout), **(options or {})}
        if result.settings == model_settings(recipe, density(result), readout=readout, options=chosen):
            matching[result.training.seed] = result
    return [matching[seed] for seed in sorted(matching)]


def published_name(data: str) -> str:
    """What the paper calls data, whatever the order of equal times.

    Examples
    --------
    >>> published_name("ml-1m-recbole"), published_name("ml-1m")
    ('ml-1m', 'ml-1m')
    """
    return data.removesuffix("-recbole")


def origin(data: str) -> str:
    """The data that thinned or generated data come from.

    Examples
    --------
    >>> origin("ml-1m-latest20"), origin("ml-1m-latest20-recbole"), origin("hawkes-mean_events80"), origin("beauty")
    ('ml-1m', 'ml-1m', 'hawkes', 'beauty')
    """
    return "hawkes" if data.startswith("hawkes-") else published_name(data).split("-latest")[0]


def as_published(results: Sequence[Result]) -> bool:
    """Whether results are of the very data that the paper has, and not of others with the same name."""
    known = CATALOG.get(published_name(results[0].data)) if results else None
    if known is None:
        return False
    counted = (results[0].statistics.get(name) for name in ("users", "items", "interactions"))
    return Statistics(*counted) == known.expected  # type: ignore[arg-type]


def density(result: Result) -> float:
    """Average number of training events of a user."""
    return float(result.training_length or result.statistics["average_length"])


def figures(results: Sequence[Result], metric: str) -> list[float]:
    """A test metric of some results, × 100."""
    return [100 * result.test[metric] for result in results]


def spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several.

    Examples
    --------
    >>> spread([8.5, 8.7]), spread([8.5])
    ('8.60 ± 0.14', '8.50')
    """
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def per_user(results: Sequence[Result], folder: Path, metric: str) -> Floats:
    """Each user's gain, averaged over the seeds of a model."""
    each = [gains(ranks(result, folder)["rank"].to_numpy().astype(float), metric) for result in results]
    averaged: Floats = np.mean(each, axis=0)
    return averaged


def ranks(result: Result, folder: Path) -> pl.DataFrame:
    """Rank of each test target, and length of the history before it."""
    path = folder / RANKS / f"{result.name}.parquet"
    if not path.exists():
        raise DataError(f"{path}: the ranks of this result are missing. Record its model anew (`marsrec lab record`).")
    return pl.read_parquet(path)


def datasets(found: Sequence[Result]) -> list[str]:
    """Names of the data in results: the paper's first, in its order."""
    return sorted({result.data for result in found}, key=_order)


def whole(found: Sequence[Result]) -> list[str]:
    """Names of the data that were neither thinned nor generated otherwise than by default."""
    return [data for data in datasets(found) if published_name(data) == origin(data)]


def main_comparison(found: Sequence[Result], data: str) -> Table:
    """Every recipe on one data set at the paper's settings, beside the paper's figures; what was not run says so."""
    results = alike(found, data)
    published = published_name(data) if as_published(results) else ""
    runs = {name: find(results, name) for name in RECIPES}
    means = {
        metric: sorted({round(mean(figures(r, metric)), 4) for r in runs.values() if r}, reverse=True)
        for metric in METRICS
    }
    rows = []
    for name, of_recipe in runs.items():
        theirs = paper.MAIN.get(published, {}).get(name)
        beside = _published(theirs, paper.DEVIATIONS.get(published, {}).get(name))
        if not of_recipe:
            rows.append([name, *["not run"] * 3, beside, "", "", "", ""])
            continue
        rows.append(
            [
                _named(name, of_recipe),
                *(_marked(figures(of_recipe, metric), means[metric]) for metric in METRICS),
                beside,
                " / ".join(
                    f"{mean(figures(of_recipe, metric)) / figure - 1:+.1%}"
                    for metric, figure in zip(METRICS, theirs or (), strict=bool(theirs))
                ),
                ", ".join(f"{result.best_epoch} of {result.epochs}" for result in of_recipe),
                f"{mean(result.undisturbed_minutes for result in of_recipe):.0f}",
                ", ".join(str(result.training.seed) for result in of_recipe),
            ]
        )
    columns = ["model", *METRICS, "paper", "against it", "best epoch", "minutes", "seeds"]
    return Table(
        columns,
        rows,
        f"Training: {trained(results)}. **Best**, *second*; mean ± standard deviation over seeds. Minutes are epochs "
        "times those of the median one, on a shared machine whose speed varies by half: they do not compare models, "
        "which the efficiency page does.",
    )


def contest(results: Sequence[Result], folder: Path) -> tuple[str, dict[str, Contest]] | None:
    """MARS as the backbone rule takes it against each of the others; None if it or all the others were not run."""
    ours = backbone(density(results[0])) if results else ""
    mine = find(results, ours) if results else []
    others = {name: find(results, name) for name in RECIPES if not name.startswith("mars")}
    contests: dict[str, Contest] = {}
    for name, theirs in others.items():
        if not mine or not theirs:
            continue
        seeds = {result.training.seed for result in mine} & {result.training.seed for result in theirs}
        pair = [[r for r in of if not seeds or r.training.seed in seeds] for of in (mine, theirs)]
        differences = {metric: paired(*(per_user(of, folder, metric) for of in pair)) for metric in METRICS}
        contests[name] = Contest(_named(name, theirs), differences, (len(pair[0]), len(pair[1])))
    return (ours, contests) if contests else None


def significance(contests: dict[str, Contest], ours: str) -> Table:
    """MARS against every other model, user by user; the best other is another one in each metric."""
    strongest = {metric: min(contests, key=lambda name: contests[name].differences[metric].mean) for metric in METRICS}
    rows = []
    for name, one in contests.items():
        cells = {metric: str(difference) for metric, difference in one.differences.items()}
        cells = {metric: best(cell) if strongest[metric] == name else cell for metric, cell in cells.items()}
        rows.append([one.other, *cells.values(), " / ".join(map(str, one.seeds))])
    return Table(
        [f"{ours} against", *METRICS, "seeds"],
        rows,
        f"Difference × 100 of {ours} and the other, with its 95 % bootstrap interval over users and the two-sided p of "
        "a paired randomisation test. A model's gains are averaged over the seeds that both have, where there are "
        "such: the interval tells of other users, not of other initial weights. **The runner-up** is the best other "
        "by the metric; it was chosen on the same test, for which p is not corrected.",
    )


def section(found: Sequence[Result], folder: Path) -> Section:
    """The main comparison on all data sets."""
    parts: list[str | Table] = [
        'Test × 100, all items ranked, history not masked. "paper" is its table of the main results: HR@10 / NDCG@10 '
        "/ MRR@10. Data sets that the paper does not have show no figures of it: games-2018 and yelp-2019 are of the "
        "same kind as its Games and Yelp, but of another year and size. mamba4rec and echomamba4rec have on sparse "
        "data the dropout that Mamba4Rec's authors take, 0.4, and not the paper's 0.5; fearec has its authors' batches "
        "of 256 targets, where the paper's have 2,048."
    ]
    run = whole(found)
    for data in sorted({*PLANNED, *run}, key=_order):
        parts.append(f"## {data}")
        if data not in run:
            parts.append("Not run.")
            continue
        parts.append(main_comparison(found, data))
        against = contest(alike(found, data), folder)
        if against is None:
            parts.append("MARS against the others: not run.")
        else:
            ours, contests = against
            parts += [f"## {data}: is the difference significant?", significance(contests, ours)]
    return Section("main", "Main comparison", parts)


def _order(data: str) -> tuple[int, str]:
    """The paper's data first, in its order; those of another year where the paper has theirs."""
    known = list(paper.MAIN)
    kind = next((name for name in known if data == name or data.startswith(f"{name}-")), None)
    return (len(known) if kind is None else known.index(kind), data)


def _published(figures: paper.Figures | None, deviations: paper.Figures | None) -> str:
    if figures is None:
        return "none"
    beside = [""] * len(figures) if deviations is None else [f" ± {deviation:.2f}" for deviation in deviations]
    return " / ".join(f"{figure:.2f}{deviation}" for figure, deviation in zip(figures, beside, strict=True))


def _training(result: Result) -> tuple[tuple[str, Any], ...]:
    """How it was trained otherwise than the paper says.

    What a recipe has of its own is left out: prefix_share is for some of them only, and stands in their rows, as do
    batches of another size.
    """
    own, size = {"seed", "prefix_share", "targets_per_batch"}, result.training.targets_per_batch
    changed = result.training.model_dump(exclude_defaults=True, exclude=NOT_DECISIVE | own)
    if size != targets_per_batch(result.settings):
        changed["targets_per_batch"] = size
    return tuple(changed.items())


def _way(result: Result) -> tuple[tuple[tuple[str, Any], ...], str, str]:
    return _training(result), result.fingerprint, result.split.model_dump_json()


def _named(name: str, of_recipe: Sequence[Result]) -> str:
    share = min(result.training.prefix_share for result in of_recipe)
    size = of_recipe[0].training.targets_per_batch  # the same for all that were trained alike
    own = "" if size == TrainingSettings().targets_per_batch else f", batches of {size:,}"
    return name + ("" if share == 1 else f", {share:.0%} of the prefixes") + own


def _marked(values: Sequence[float], ordered: Sequence[float]) -> str:
    place = ordered.index(round(mean(values), 4))
    return (best, second)[place](spread(values)) if place < 2 else spread(values)
