"""The main comparison: every recipe beside the paper's figures, and MARS against each of the others."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from scipy.stats import t as student

from marsrec.evaluation.significance import Difference
from marsrec.lab.comparison import EXPLAINED, Cell, density, difference, figures, marked, same_seeds, told
from marsrec.lab.page import Section, Table, digits
from marsrec.lab.results import Result
from marsrec.models import RECIPES, backbone
from marsrec.training.settings import MONITOR, TrainingSettings
from reproduction.as_printed import ROWS
from reproduction.comparable import alike, as_published, find, order, published_name, trained, whole
from reproduction.published import DEVIATIONS, MAIN, METRICS, against, shown

PLANNED = tuple(ROWS)
"""The data of the comparison, run or not: the paper's, and what stands in for two of them."""


@dataclass(frozen=True)
class Contest:
    """MARS against another model on the same users."""

    other: str
    reached: dict[str, float]
    """Its figures, by metric."""
    differences: dict[str, Difference]
    """By metric, MARS less the other."""
    over_seeds: str
    """What other initial weights would bring, of the metric that training monitors."""


def main_comparison(found: Sequence[Result], data: str) -> Table:
    """Every recipe on one data set at the paper's settings, beside the paper's figures; what was not run says so."""
    results = alike(found, data)
    published = published_name(data) if as_published(results) else ""
    runs = {name: find(results, name) for name in RECIPES}
    columns = {metric: [figures(run, metric) for run in runs.values() if run] for metric in METRICS}
    rows = []
    for name, of_recipe in runs.items():
        theirs = MAIN.get(published, {}).get(name)
        beside = shown(theirs, DEVIATIONS.get(published, {}).get(name))
        if not of_recipe:
            rows.append([name, *["not run"] * 3, beside, "", "", "", ""])
            continue
        rows.append(
            [
                _named(name, of_recipe),
                *(marked(figures(of_recipe, metric), columns[metric]) for metric in METRICS),
                beside,
                against([mean(figures(of_recipe, metric)) for metric in METRICS], theirs),
                ", ".join(f"{result.best_epoch} of {result.epochs}" for result in of_recipe),
                digits(mean(result.undisturbed_minutes for result in of_recipe)),
                ", ".join(str(result.training.seed) for result in of_recipe),
            ]
        )
    return Table(
        ["model", *METRICS, "paper", "against it", "best epoch", "minutes", "seeds"],
        rows,
        f"Training: {trained(results)}. *Best* of the column; mean ± standard deviation over seeds. Minutes are epochs "
        "times those of the median one, as it went on the machine of each run; the efficiency page compares models.",
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
        differences = {metric: difference(mine, theirs, folder, metric) for metric in METRICS}
        reached = {metric: mean(figures(theirs, metric)) for metric in METRICS}
        contests[name] = Contest(_named(name, theirs), reached, differences, over_seeds(mine, theirs))
    return (ours, contests) if contests else None


def over_seeds(mine: Sequence[Result], theirs: Sequence[Result], metric: str = MONITOR) -> str:
    """The mean difference over the seeds that both models have, and its 95 % interval by Student's t."""
    pairs = zip(*(figures(of, metric) for of in same_seeds(mine, theirs)), strict=False)
    differences = [one - other for one, other in pairs]
    common = {result.training.seed for result in mine} & {result.training.seed for result in theirs}
    if len(common) < 2:
        return "one seed"
    half = float(student.ppf(0.975, len(differences) - 1)) * stdev(differences) / len(differences) ** 0.5
    centre = mean(differences)
    return f"{centre:+.2f} [{centre - half:+.2f}, {centre + half:+.2f}], {len(differences)} seeds"


def significance(contests: dict[str, Contest], ours: str) -> Table:
    """MARS against every other model, user by user; the best other is another one in each metric."""
    strongest = {metric: max(contests.values(), key=lambda one: one.reached[metric]).other for metric in METRICS}
    named = ", ".join(f"{other} by {metric}" for metric, other in strongest.items())
    rows: list[list[Cell]] = [[one.other, *one.differences.values(), one.over_seeds] for one in contests.values()]
    return Table(
        [f"{ours} against", *METRICS, f"{MONITOR} over seeds"],
        told(rows),
        f"{ours} less the other. {EXPLAINED} The last column has the mean difference over the seeds that both have and "
        "its 95 % interval (Student's t): it tells of other initial weights, not of other users. "
        f"The best others are {named}: chosen on the same test, for which p is not "
        "corrected.",
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
    for data in sorted({*PLANNED, *run}, key=order):
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


def _named(name: str, of_recipe: Sequence[Result]) -> str:
    share = min(result.training.prefix_share for result in of_recipe)
    size = of_recipe[0].training.targets_per_batch  # the same for all that were trained alike
    own = "" if size == TrainingSettings().targets_per_batch else f", batches of {size:,}"
    return name + ("" if share == 1 else f", {share:.0%} of the prefixes") + own
