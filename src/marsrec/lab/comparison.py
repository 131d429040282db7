"""Results side by side: what counts as one model, and how two models compare on the same seeds and the same users."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.groups import length_buckets, members
from marsrec.evaluation.measures import measures
from marsrec.evaluation.significance import LEVEL, Difference, Floats, holm, paired
from marsrec.lab.page import best, significant
from marsrec.lab.results import RANKS, Result
from marsrec.models import decisive
from marsrec.training.settings import MONITOR, NOT_DECISIVE

METRICS = ("HR@10", "NDCG@10", "MRR@10")
"""What tables show."""

EXPLAINED = (
    "Differences are × 100, with their 95 % bootstrap interval over users and the two-sided p of a paired "
    f"randomisation test. **Bold** is statistically significant: p below {LEVEL} after Holm's correction for all "
    "differences of the table; the printed p is not corrected. Both models are averaged over the seeds that both "
    "have, where there are such: the interval tells of other users, not of other initial weights."
)
"""What the difference of two models is, for texts and captions."""


@dataclass(frozen=True)
class Contest:
    """Models that were measured on the same targets of the same events."""

    data: str
    """Name of the data, which says so where the targets are those of validation."""
    models: dict[str, list[Result]]
    """Results of each model, one per seed: those whose settings and training differ in nothing else."""
    reference: str | None
    """The model that the others are compared with; None where the one that was named was not run."""

    @property
    def others(self) -> dict[str, list[Result]]:
        """All models but the reference."""
        return {name: results for name, results in self.models.items() if name != self.reference}


def contests(found: Sequence[Result], against: str | None = None) -> list[Contest]:
    """Group results by data and model.

    Parameters
    ----------
    found : sequence of Result
        Of any experiments.
    against : str, optional
        Name of the model that the others are compared with; by default the best one by validation.
    """
    by_data: dict[tuple[str, str, str], list[Result]] = defaultdict(list)
    for result in sorted(found, key=lambda result: result.data):
        by_data[data_and_part(result), result.fingerprint, result.split.model_dump_json()].append(result)
    names = [data for data, _, _ in by_data]
    listed = []
    for (data, fingerprint, _), results in by_data.items():
        models = _models(results)
        reference = max(models, key=lambda name: validation(models[name])) if against is None else against
        known = data if names.count(data) == 1 else f"{data} ({fingerprint[:8]})"
        listed.append(Contest(known, models, reference if reference in models else None))
    if against is not None and not any(contest.reference for contest in listed):
        models_known = sorted({name for contest in listed for name in contest.models})
        raise SettingsError(f"no model {against!r} among the results; there are {', '.join(models_known)}.")
    return listed


def _models(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Results by the name of their model, the best by validation first."""

    def way(result: Result) -> tuple[str, str]:
        return decisive(result.settings), json.dumps(_training(result))

    ordered = sorted(results, key=lambda result: (*way(result), result.training.seed))
    groups = sorted((list(group) for _, group in groupby(ordered, key=way)), key=validation, reverse=True)
    return dict(zip(_names([group[0] for group in groups]), groups, strict=True))


def _names(models: Sequence[Result]) -> list[str]:
    """What models are called: by the settings in which they differ, where they would be called the same."""
    settings = [{**_flat(model.settings.model_dump()), **_training(model)} for model in models]
    names = []
    for model, chosen in zip(models, settings, strict=True):
        same = [other for one, other in zip(models, settings, strict=True) if one.model == model.model]
        differing = [name for name in chosen if any(other.get(name) != chosen[name] for other in same)]
        names.append(", ".join([model.model, *(f"{name}={json.dumps(chosen[name])}" for name in differing)]))
    return names


def _training(result: Result) -> dict[str, Any]:
    return result.training.model_dump(mode="json", exclude=NOT_DECISIVE | {"seed"})


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted name."""
    flat: dict[str, Any] = {}
    for name, value in settings.items():
        flat |= _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else {f"{prefix}{name}": value}
    return flat


def validation(results: Sequence[Result]) -> float:
    """The validation metric that training monitors, averaged over seeds: choices never see the test."""
    return mean(result.valid[MONITOR] for result in results)


def figures(results: Sequence[Result], metric: str) -> list[float]:
    """A metric of some results, × 100: of the test, or of validation where settings are chosen by the run."""
    return [100 * result.figures[1][metric] for result in results]


def data_and_part(result: Result) -> str:
    """Name of the data, followed by the part where that is not the test."""
    return result.data if result.figures[0] == "test" else f"{result.data}, validation"


def parts_of(found: Iterable[Result]) -> str:
    """The parts that figures are of, as the beginning of a caption."""
    parts = {result.figures[0] for result in found}
    return "Test" if parts == {"test"} else "Validation" if parts == {"valid"} else "Test or, where named, validation"


def spread(values: Sequence[float]) -> str:
    """Mean, and standard deviation where there are several.

    Examples
    --------
    >>> spread([8.5, 8.7]), spread([8.5])
    ('8.60 ± 0.14', '8.50')
    """
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def marked(values: Sequence[float], column: Sequence[Sequence[float]]) -> str:
    """Mean and deviation as a cell, marked where the mean is the best of its column.

    Examples
    --------
    >>> marked([9.0], [[8.5], [9.0], [2.0]]), marked([8.5], [[8.5], [9.0]]), marked([8.5], [[8.5]])
    ('*9.00*', '8.50', '8.50')
    """
    means = {round(mean(others), 4) for others in column}
    alone = len(means) < 2  # and so the best of none
    return spread(values) if alone or round(mean(values), 4) < max(means) else best(spread(values))


def density(result: Result) -> float:
    """Average number of training events of a user."""
    return float(result.training_length or result.statistics["average_length"])


def per_user(results: Sequence[Result], folder: Path, metric: str) -> Floats:
    """The gain at each target, averaged over the seeds of a model; with leave-one-out, each user's."""
    (measure,) = measures(metric)
    each = [np.asarray(measure(ranks(result, folder)["rank"].to_numpy().astype(float))) for result in results]
    averaged: Floats = np.mean(each, axis=0)
    return averaged


def ranks(result: Result, folder: Path) -> pl.DataFrame:
    """Rank of each target, and length of the history before it."""
    path = folder / RANKS / f"{result.name}.parquet"
    if not path.exists():
        raise DataError(f"{path}: the ranks of this result are missing. Record its model anew (`marsrec lab record`).")
    return pl.read_parquet(path)


def owners(result: Result, folder: Path) -> NDArray[np.int64] | None:
    """The user of each target; None where the split leaves each user one."""
    if result.split.name == "leave-one-out":
        return None
    written = ranks(result, folder)
    if "user" not in written.columns:
        raise DataError(
            f"{folder / RANKS / result.name}.parquet: does not tell the users, who have several targets with the split "
            f"{result.split.name!r}. Record the model anew (`marsrec lab record`)."
        )
    return written["user"].to_numpy().astype(np.int64)


def length_groups(result: Result, folder: Path) -> dict[str, NDArray[np.bool_]]:
    """Which targets have histories of which length; on dense data groups reach further."""
    lengths = ranks(result, folder)["length"].to_numpy().astype(np.int64)
    return members(length_buckets(lengths, density(result)))


def time_groups(result: Result, folder: Path) -> dict[str, NDArray[np.bool_]]:
    """Which targets have the time of the latest event before them, and which a later one.

    Empty where all are alike, and for ranks that were written when this was not noted.
    """
    written = ranks(result, folder)
    groups = members(written["time"]) if "time" in written.columns else {}
    return groups if all(rows.any() for rows in groups.values()) else {}


def same_seeds(first: Sequence[Result], second: Sequence[Result]) -> tuple[list[Result], list[Result]]:
    """Results of two models with the seeds that both have; all of them if they have none in common."""
    seeds = {result.training.seed for result in first} & {result.training.seed for result in second}
    one, other = ([result for result in of if not seeds or result.training.seed in seeds] for of in (first, second))
    return one, other


def difference(first: Sequence[Result], second: Sequence[Result], folder: Path, metric: str) -> Difference:
    """How much better the first is, user by user."""
    one, other = same_seeds(first, second)
    users = owners(one[0], folder)
    return paired(per_user(one, folder, metric), per_user(other, folder, metric), users=users)


def gain(first: Sequence[Result], second: Sequence[Result], metric: str = "HR@10") -> float:
    """How much better the first is, relative to the second, on the seeds that both have."""
    one, other = same_seeds(first, second)
    return mean(figures(one, metric)) / mean(figures(other, metric)) - 1


@dataclass(frozen=True)
class Change:
    """A difference, after the relative gain."""

    gain: float
    difference: Difference

    def __str__(self) -> str:
        return f"{self.gain:+.1%}: {self.difference}"


def change(first: Sequence[Result], second: Sequence[Result], folder: Path, metric: str) -> Change:
    """How much better the first is, relatively and user by user."""
    return Change(gain(first, second, metric), difference(first, second, folder, metric))


Cell = str | Difference | Change


def told(rows: Sequence[Sequence[Cell]]) -> list[list[str]]:
    """The rows of a table with differences, bold where they are statistically significant: see `EXPLAINED`.

    Examples
    --------
    >>> told([["gru", Difference(0.01, 0.004, 0.016, 0.001)], ["narm", Difference(0.005, -0.001, 0.01, 0.06)]])
    [['gru', '**+1.00 [+0.40, +1.60], p = 0.0010**'], ['narm', '+0.50 [-0.10, +1.00], p = 0.0600']]
    >>> told([["gru", Difference(0.01, 0.004, 0.016, 0.03)], ["narm", Difference(0.005, 0.0, 0.01, 0.03)]])[0][1]
    '+1.00 [+0.40, +1.60], p = 0.0300'
    """
    differences = [cell.difference if isinstance(cell, Change) else cell for row in rows for cell in row]
    corrected = iter(holm([cell.p for cell in differences if isinstance(cell, Difference)]))
    return [
        [
            cell if isinstance(cell, str) else significant(str(cell)) if next(corrected) < LEVEL else str(cell)
            for cell in row
        ]
        for row in rows
    ]
