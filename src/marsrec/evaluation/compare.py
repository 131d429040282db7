"""Compare two models on the same test: figures, differences, and whether these are more than chance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.data.splits import Part, Split, Targets
from marsrec.errors import DataError
from marsrec.evaluation.by_name import Function
from marsrec.evaluation.evaluate import Evaluation
from marsrec.evaluation.groups import GROUPS, groups_of, members
from marsrec.evaluation.metrics import ACCURACY
from marsrec.evaluation.significance import holm, paired

EVERYTHING = "all"
"""The group of all targets."""


class Evaluable(Protocol):
    """A model with a test of its own, such as a fitted `Recommender`."""

    def split(self) -> Split:
        """Its data, and which events are trained on and predicted."""

    def evaluate(
        self, part: Part, *, metrics: Sequence[str | Function], mask_seen: bool, ks: Sequence[int]
    ) -> Evaluation:
        """Its ranks of the targets, and its lists."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """Two models, a and b, on the same targets."""

    table: pl.DataFrame
    """A row per group and metric: `grouping`, `group`, `targets`, `metric`, the figures `a` and `b`, `difference`
    (a less b), its 95 % interval over users `low` to `high`, `p`, and `p_holm`, which is corrected for all rows of the
    table. The last four are null for a metric of all lists together, such as coverage."""
    part: Part
    mask_seen: bool

    def __repr__(self) -> str:
        with pl.Config(
            tbl_rows=-1,
            tbl_cols=-1,
            tbl_width_chars=160,
            tbl_hide_dataframe_shape=True,
            tbl_hide_column_data_types=True,
        ):
            seen = "history masked" if self.mask_seen else "history not masked"
            return f"Comparison on {self.part}, {seen}; differences are a less b\n{self.table}"


def compare(
    a: Evaluable,
    b: Evaluable,
    *,
    part: Part = "test",
    metrics: Sequence[str | Function] = ACCURACY,
    groups: Sequence[str | Function] = tuple(GROUPS),
    ks: Sequence[int] = (10,),
    mask_seen: bool = False,
    draws: int = 20_000,
    seed: int = 0,
) -> Comparison:
    """Compare two models on the same targets: over all of them and by group.

    Parameters
    ----------
    a, b : Recommender
        Models that were fitted on the same data with the same split.
    part : {"valid", "test"}
        Which targets.
    metrics : sequence of str or function
        What is compared; see `marsrec.evaluation.metrics`.
    groups : sequence of str or function
        Groups of targets; see `marsrec.evaluation.groups`.
    ks : sequence of int
        Cut-offs of metrics that name none.
    mask_seen : bool
        Leave items of the user's past out of the ranking.
    draws : int
        Resamples of users, and random flips, per row; see `paired`.
    seed : int
        Of the draws.
    """
    split = _same_split(a.split(), b.split(), part)
    targets = split.targets(part)
    parts = dict(_parts(groups, split, targets))
    first, second = (model.evaluate(part, metrics=metrics, mask_seen=mask_seen, ks=ks) for model in (a, b))
    rows = [
        {"grouping": grouping, "group": group, "targets": int(chosen.sum()), **row}
        for (grouping, group), chosen in parts.items()
        for row in _rows(first[chosen], second[chosen], targets.users[chosen], draws, seed)
    ]
    tested = [row for row in rows if "p" in row]
    for row, corrected in zip(tested, holm([row["p"] for row in tested]), strict=True):
        row["p_holm"] = corrected
    return Comparison(pl.DataFrame(rows, schema=_SCHEMA), part, mask_seen)


def _parts(
    groups: Sequence[str | Function], split: Split, targets: Targets
) -> Iterator[tuple[tuple[str, str], NDArray[np.bool_]]]:
    """Which targets are compared together: all, and those of each group that has some and not all."""
    yield (EVERYTHING, EVERYTHING), np.ones(len(targets), dtype=bool)
    for group in groups:
        grouping, labels = groups_of(group, split, targets)
        for name, chosen in members(labels).items():
            if chosen.any() and not chosen.all():
                yield (grouping, name), chosen


def _rows(
    first: Evaluation, second: Evaluation, users: NDArray[np.int64], draws: int, seed: int
) -> Iterator[dict[str, Any]]:
    """A row per metric over some targets."""
    for measure in first.measures:
        one, other = (measure(of.ranks, of.lists) for of in (first, second))
        a, b = float(np.mean(one)), float(np.mean(other))
        row: dict[str, Any] = {"metric": measure.name, "a": a, "b": b, "difference": a - b}
        if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
            found = paired(one, other, users=users, draws=draws, seed=seed)
            row |= {"low": found.low, "high": found.high, "p": found.p}
        yield row


def _same_split(first: Split, second: Split, part: Part) -> Split:
    """The split of both models; an error says what differs."""
    one, other = first.histories, second.histories
    if one.fingerprint != other.fingerprint:
        facts, others = one.statistics(), other.statistics()
        differ = ", ".join(
            f"{name} {facts[name]} against {others[name]}" for name in facts if facts[name] != others[name]
        )
        raise DataError(f"compare: the models were fitted on different data ({differ}). Fit both on the same log.")
    same = {
        "splits": first.name == second.name,
        "training events": np.array_equal(first.train_ends, second.train_ends),
        f"{part} targets": np.array_equal(first.targets(part).positions, second.targets(part).positions),
    }
    for what, is_same in same.items():
        if not is_same:
            raise DataError(
                f"compare: the models have different {what} ({_described(first)} against {_described(second)}). Fit "
                "both with the same split."
            )
    return first


def _described(split: Split) -> str:
    return (
        f"{split.name}: {split.train_lengths.sum():,} training events, {len(split.valid):,} validation and "
        f"{len(split.test):,} test targets"
    )


_SCHEMA = {
    "grouping": pl.String,
    "group": pl.String,
    "targets": pl.Int64,
    "metric": pl.String,
    **dict.fromkeys(("a", "b", "difference", "low", "high", "p", "p_holm"), pl.Float64),
}
