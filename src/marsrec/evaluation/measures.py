"""Metrics at cut-offs, and their figures."""

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from marsrec.errors import DataError, SettingsError
from marsrec.evaluation.by_name import Function, by_name, name_of
from marsrec.evaluation.lists import Lists
from marsrec.evaluation.metrics import ACCURACY, METRICS, Floats

KS = (5, 10, 20)


@dataclass(frozen=True)
class Measure:
    """A metric at a cut-off.

    Examples
    --------
    >>> ndcg = measures("ndcg@10")[0]
    >>> ndcg.name, ndcg(np.array([1.0, 3.0, 11.0])).tolist()
    ('NDCG@10', [1.0, 0.5, 0.0])
    """

    name: str
    function: Function
    k: int | None
    """None for a metric of whole ranks."""
    of_lists: bool

    def __call__(self, ranks: Floats, lists: Lists | None = None) -> Floats | float:
        """A value per target, or one number for all of them."""
        if not self.of_lists:
            value = self.function(ranks) if self.k is None else self.function(ranks, k=self.k)
        elif lists is None or self.k is None:
            raise DataError(f"{self.name}: a metric of recommended lists, which were not made here.")
        else:
            value = self.function(lists.first(self.k))
        values = np.asarray(value, dtype=np.float64)
        if values.shape not in ((), ranks.shape):
            raise DataError(
                f"{self.name}: gave values {values.shape} for {len(ranks)} targets; return one for each, or one number."
            )
        if not np.isfinite(values).all():
            row = int(np.isfinite(values).argmin())
            raise DataError(f"{self.name}: gave {values.flat[row]} for target {row}; every target has a finite value.")
        return values if values.ndim else float(values)


def measures(metrics: str | Function | Sequence[str | Function] = ACCURACY, ks: Sequence[int] = KS) -> list[Measure]:
    """Metrics at cut-offs, by name.

    Parameters
    ----------
    metrics : str, function, or a sequence of them
        A name with a cut-off, such as "coverage@10"; a name or function alone is measured at each of `ks`. The name of
        somebody else's metric is `module:function`.
    ks : sequence of int
        Cut-offs of metrics that name none.

    Examples
    --------
    >>> [measure.name for measure in measures(["HR", "NDCG", "coverage@50"], ks=(5, 10))]
    ['HR@5', 'NDCG@5', 'HR@10', 'NDCG@10', 'coverage@50']
    """
    listed = [metrics] if isinstance(metrics, str) or callable(metrics) else list(metrics)
    if not listed:
        raise SettingsError(f"metrics: none given. Known: {', '.join(METRICS)}.")
    at_all, at_one = [], []
    for metric in listed:
        name, at, k = metric.rpartition("@") if isinstance(metric, str) else (metric, "", "")
        if not at:
            at_all.append(_known(metric))
        elif not k.isdecimal():
            raise SettingsError(f"metric {metric!r}: the cut-off is a whole number, as in {name}@10; found {k!r}.")
        else:
            at_one.append((*_known(name), int(k)))
    found = [_measure(*metric, k) for k in ks for metric in at_all] + [_measure(*metric) for metric in at_one]
    kept: dict[str, Measure] = {}
    for measure in found:
        if kept.setdefault(measure.name, measure) != measure:
            raise SettingsError(f"metrics: two are called {measure.name}. Give one of the functions another name.")
    return list(kept.values())


def figures(chosen: Sequence[Measure], ranks: ArrayLike, lists: Lists | None = None) -> dict[str, float]:
    """The figure of each measure: the mean over targets where it has a value for each.

    Examples
    --------
    >>> figures(measures(ks=[4]), [1.0, 3.0, 12.0, 4.5])
    {'HR@4': 0.5, 'NDCG@4': 0.375, 'MRR@4': 0.333...}
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    if len(ranks) == 0:
        raise DataError("metrics: there are no ranks to average; evaluate at least one user")
    wrong = ~(ranks >= 1)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(f"metrics: rank {ranks[row]} in row {row}; ranks count from 1")
    return {measure.name: float(np.mean(measure(ranks, lists))) for measure in chosen}


def _known(metric: str | Function) -> tuple[str, Function]:
    """A metric's name and function."""
    if isinstance(metric, str):
        return by_name(metric, METRICS, "metric")
    if not callable(metric):
        raise SettingsError(f"a metric is a name such as 'coverage@10' or a function; found {metric!r}.")
    return name_of(metric, METRICS), metric


def _measure(name: str, function: Function, k: int) -> Measure:
    parameters = _parameters(function)
    kind = next(iter(parameters), None)
    if kind not in ("ranks", "lists"):
        raise SettingsError(
            f"metric {name}: its first parameter is called `ranks` or `lists`, which says what it measures; "
            f"found {kind or 'none'}."
        )
    if kind == "ranks" and "k" not in parameters:
        return Measure(name, function, None, of_lists=False)
    if k < 1:
        raise SettingsError(f"metrics: cut-offs k are at least 1; found {k}")
    return Measure(f"{name}@{k}", function, k, of_lists=kind == "lists")


def _parameters(function: Function) -> dict[str, Any]:
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # some built-in functions have no signature
        return {}
