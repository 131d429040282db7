"""Commands that measure saved models: evaluate one, compare two."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from marsrec.cli import console, options
from marsrec.cli.options import Json, Saved

if TYPE_CHECKING:
    import polars as pl

PartOption = Annotated[Literal["test", "valid"], typer.Option(help="Which targets.")]
MaskSeen = Annotated[
    bool,
    typer.Option(
        "--mask-seen/--keep-seen",
        help="Leave items of the user's past out of the ranking, except the target; or rank them, too.",
    ),
]
Metrics = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        help="Metrics: HR, NDCG, MRR, coverage, Gini, popularity, novelty, repeats, diversity or your own "
        "module:function, with a cut-off (coverage@10) or without; may be repeated.",
    ),
]


def evaluate(
    saved: Saved,
    part: PartOption = "test",
    metric: Metrics = None,
    mask_seen: MaskSeen = False,
    k: Annotated[
        list[int] | None, typer.Option("--k", "-k", help="Cut-offs of the metrics; 5, 10 and 20 if not given.")
    ] = None,
    ranks: Annotated[
        Path | None, typer.Option(help="Write every target's rank to this parquet file.", dir_okay=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Evaluate a saved model by full ranking, over all targets and by history length."""
    from marsrec.evaluation.evaluate import write_ranks
    from marsrec.evaluation.groups import history_length, repetition
    from marsrec.evaluation.measures import KS, measures
    from marsrec.evaluation.metrics import ACCURACY
    from marsrec.recommender import Recommender

    options.find_own_modules(metric)
    recommender = Recommender.load(saved)
    evaluation = recommender.evaluate(part, metrics=metric or ACCURACY, mask_seen=mask_seen, ks=tuple(k or KS))
    split = recommender.split()
    targets = split.targets(part)
    by_length = evaluation if metric else replace(evaluation, measures=measures(ACCURACY, (10,)))
    groups = by_length.by_group(history_length(split, targets))
    repeats = (repetition(split, targets) == "repeat").sum() / len(targets)
    if ranks is not None:
        write_ranks(ranks, evaluation, split.histories, targets)
        console.note(f"Ranks written to {ranks}.")
    if as_json:
        console.as_json(
            {
                "part": part,
                "mask_seen": mask_seen,
                "repeats": repeats,
                "metrics": evaluation.metrics,
                "by_history_length": groups.to_dicts(),
            }
        )
        return
    seen = "history masked" if mask_seen else "history not masked"
    names = list(evaluation.metrics)
    scale = "× 100" if all(map(_is_share, names)) else "HR, NDCG and MRR × 100"
    figures = [_shown(name, value) for name, value in evaluation.metrics.items()]
    console.table(f"{saved} ({scale}, {part}, all items ranked, {seen})", ["", *names], [[part, *figures]])
    _print_groups(groups)
    if mask_seen and repeats:
        console.note(
            f"{100 * repeats:.1f} % of the targets are items that the user had before. They stay ranked here, with "
            "fewer rivals, and count in the figures above; `recommend` shows such items only with --keep-seen."
        )


def compare(
    a: Annotated[Path, typer.Argument(help="A folder that `marsrec fit` wrote.")],
    b: Annotated[Path, typer.Argument(help="Another, fitted on the same data.")],
    part: PartOption = "test",
    metric: Metrics = None,
    group: Annotated[
        list[str] | None,
        typer.Option(
            help="Also by group of targets: length, time, repeats or your own module:function; may be repeated. "
            "The first three if not given."
        ),
    ] = None,
    mask_seen: MaskSeen = False,
    k: Annotated[
        list[int] | None, typer.Option("--k", "-k", help="Cut-offs of metrics that name none; 10 if not given.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compare two saved models on the same test, over all users and by group."""
    from marsrec.evaluation.compare import compare
    from marsrec.evaluation.groups import GROUPS
    from marsrec.evaluation.metrics import ACCURACY
    from marsrec.recommender import Recommender

    options.find_own_modules(metric, group)
    first, second = Recommender.load(a), Recommender.load(b)
    comparison = compare(
        first,
        second,
        part=part,
        metrics=metric or ACCURACY,
        groups=group or tuple(GROUPS),
        ks=tuple(k or (10,)),
        mask_seen=mask_seen,
    )
    if as_json:
        about = {"a": str(a), "b": str(b), "part": part, "mask_seen": mask_seen}
        console.as_json(about | {"rows": comparison.table.to_dicts()})
        return
    console.sentence(f"a: {a}")
    console.sentence(f"b: {b}")
    for (grouping,), rows in comparison.table.group_by(["grouping"], maintain_order=True):
        console.table(_TITLES.get(str(grouping), f"By {grouping}"), _COLUMNS, [_row(row) for row in rows.to_dicts()])
    console.note(
        "HR, NDCG and MRR × 100. Differences are a less b, with a 95 % bootstrap interval over users and the two-sided "
        "p of a paired randomisation test; Holm's p is corrected for all rows."
    )
    if first.network.sees_request_time != second.network.sees_request_time:
        sees, other = ("a", "b") if first.network.sees_request_time else ("b", "a")
        console.note(f"{sees} sees the moment of the request, which is the time of the target; {other} does not.")


_TIMES_100 = ("HR", "NDCG", "MRR")


def _is_share(name: str) -> bool:
    """Whether tables show a metric × 100."""
    return name.split("@")[0] in _TIMES_100


def _shown(name: str, value: float | None, form: str = "") -> str:
    """A figure of a metric, as tables show it; empty if there is none."""
    if value is None:
        return ""
    return f"{100 * value:{form}.2f}" if _is_share(name) else f"{value:{form}#.4g}"


def _print_groups(groups: "pl.DataFrame") -> None:
    """Metrics by number of earlier events, without the groups that have no targets."""
    names = groups.columns[2:]
    rows = [
        [row["group"], row["targets"], *(_shown(name, row[name]) for name in names)]
        for row in groups.to_dicts()
        if row["targets"]
    ]
    console.table("By number of earlier events", ["events", "targets", *names], rows)


_TITLES = {
    "all": "All targets",
    "length": "By number of earlier events",
    "time": "By whether the target has the time of the latest event before it",
    "repeats": "By whether the user had the target before",
}
_COLUMNS = ["", "targets", "metric", "a", "b", "a - b", "95 % interval", "p", "p (Holm)"]


def _row(row: dict[str, Any]) -> list[Any]:
    """A row of a comparison, as cells."""
    name = row["metric"]
    figures = [_shown(name, row["a"]), _shown(name, row["b"]), _shown(name, row["difference"], "+")]
    if row["p"] is None:
        return [row["group"], row["targets"], name, *figures, "", "", ""]
    interval = f"{_shown(name, row['low'], '+')} to {_shown(name, row['high'], '+')}"
    chances = ["<0.0001" if p < 1e-4 else f"{p:.4f}" for p in (row["p"], row["p_holm"])]
    return [row["group"], row["targets"], name, *figures, interval, *chances]
